"""Language models, attention and its parts."""

import torch
from table import Training, images, program, rows, sequences, tokens
from torch import nn


@program("x-transformers")
def x_transformers_decoder():
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=32, depth=2, heads=2, rotary_pos_emb=True, attn_flash=False)
    return Training(TransformerWrapper(num_tokens=99, max_seq_len=64, attn_layers=layers), tokens())


@program("x-transformers")
def x_transformers_alibi():
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=32, depth=2, heads=2, alibi_pos_bias=True, ff_glu=True, use_rmsnorm=True)
    return Training(TransformerWrapper(num_tokens=99, max_seq_len=64, attn_layers=layers), tokens())


@program("x-transformers")
def x_transformers_encoder_decoder():
    from x_transformers import XTransformer

    model = XTransformer(
        dim=32,
        enc_num_tokens=50,
        enc_depth=1,
        enc_heads=2,
        enc_max_seq_len=64,
        dec_num_tokens=50,
        dec_depth=1,
        dec_heads=2,
        dec_max_seq_len=64,
    )

    def inputs(n):
        source, target = torch.randint(0, 50, (2, 8 + n)), torch.randint(0, 50, (2, 8 + n))
        return {"src": source, "tgt": target, "mask": torch.ones(2, 8 + n).bool()}

    return Training(model, inputs)


@program("einops")
def einops_layers():
    from einops.layers.torch import EinMix, Rearrange, Reduce

    model = nn.Sequential(
        Rearrange("b c (h p) (w q) -> b (h w) (c p q)", p=4, q=4),
        nn.Linear(48, 16),
        EinMix("b t c -> b t d", weight_shape="c d", c=16, d=8),
        Reduce("b t c -> b c", "mean"),
    )
    return Training(model, images())


@program("einops")
def einops_functions():
    from einops import einsum, pack, rearrange, repeat, unpack

    def run(x, token):
        token = repeat(token, "d -> b 1 d", b=x.shape[0])
        packed, shapes = pack([token, x], "b * d")
        q, k = rearrange(packed, "b n (h d two) -> two b h n d", h=2, two=2)
        weights = einsum(q, k, "b h i d, b h j d -> b h i j").softmax(-1)
        mixed = rearrange(einsum(weights, k, "b h i j, b h j d -> b h i d"), "b h n d -> b n (h d)")
        return unpack(mixed, shapes, "b * d")

    token = nn.Parameter(torch.randn(16))
    return Training(run, lambda n: (torch.randn(n, 5, 16), token), [token])


@program("local-attention")
def local_attention_transformer():
    from local_attention import LocalTransformer

    model = LocalTransformer(
        num_tokens=50, dim=32, depth=1, max_seq_len=64, local_attn_window_size=8, heads=2
    )
    return Training(model, tokens(50))


@program("rotary-embedding-torch")
def rotary_embedding():
    from rotary_embedding_torch import RotaryEmbedding

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.rotary = RotaryEmbedding(dim=8)
            self.project = nn.Linear(16, 48)

        def forward(self, x):
            q, k, v = (
                part.unflatten(-1, (2, 8)).transpose(1, 2)
                for part in self.project(x).chunk(3, dim=-1)
            )
            q, k = self.rotary.rotate_queries_or_keys(q), self.rotary.rotate_queries_or_keys(k)
            return nn.functional.scaled_dot_product_attention(q, k, v)

    return Training(Attention(), sequences(16))


@program("linear-attention-transformer")
def linear_attention_transformer():
    from linear_attention_transformer import LinearAttentionTransformerLM

    model = LinearAttentionTransformerLM(
        num_tokens=50, dim=32, heads=2, depth=1, max_seq_len=64, causal=False
    )
    return Training(model, tokens(50))


@program("performer-pytorch")
def performer():
    from performer_pytorch import PerformerLM

    model = PerformerLM(num_tokens=50, max_seq_len=64, dim=32, depth=1, heads=2, dim_head=16)
    return Training(model, tokens(50))


@program("perceiver-pytorch")
def perceiver():
    from perceiver_pytorch import Perceiver

    model = Perceiver(
        input_channels=3,
        input_axis=2,
        num_freq_bands=2,
        max_freq=4.0,
        depth=1,
        num_latents=4,
        latent_dim=16,
        cross_dim_head=8,
        latent_dim_head=8,
        latent_heads=2,
        num_classes=5,
    )
    return Training(model, lambda n: (torch.randn(n, 8, 8, 3),))


@program("conformer")
def conformer_block():
    from conformer import ConformerBlock

    return Training(ConformerBlock(dim=16, dim_head=8, heads=2, conv_kernel_size=5), sequences(16))


@program("vector-quantize-pytorch")
def vector_quantize():
    from vector_quantize_pytorch import VectorQuantize

    return Training(VectorQuantize(dim=16, codebook_size=8, decay=0.8), sequences(16))


@program("vector-quantize-pytorch")
def residual_fsq():
    from vector_quantize_pytorch import FSQ

    return Training(nn.Sequential(nn.Linear(16, 16), FSQ([5, 3], dim=16)), sequences(16))


@program("entmax")
def entmax_loss():
    from entmax import entmax15, sparsemax

    model = nn.Linear(8, 8)
    return Training(
        lambda x: (sparsemax(model(x), dim=-1), entmax15(model(x), dim=-1)),
        rows(8),
        model.parameters(),
    )


@program("transformers")
def transformers_gpt2():
    import transformers

    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=99, n_positions=64)
    return Training(transformers.GPT2LMHeadModel(config), tokens())


@program("transformers")
def transformers_t5():
    import transformers

    config = transformers.T5Config(
        vocab_size=99, d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2
    )

    def inputs(n):
        ids = torch.randint(1, 99, (2, 8 + n))
        return {"input_ids": ids, "labels": ids, "use_cache": False}

    return Training(transformers.T5ForConditionalGeneration(config), inputs)


@program("transformers")
def transformers_bert_loss():
    import transformers

    config = transformers.BertConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        num_labels=3,
    )

    def inputs(n):
        ids = torch.randint(1, 99, (n, 8))
        mask = torch.ones(n, 8, dtype=torch.long)
        mask[0, 5:] = 0
        return {
            "input_ids": ids,
            "attention_mask": mask,
            "labels": torch.zeros(n, dtype=torch.long),
        }

    return Training(transformers.BertForSequenceClassification(config), inputs)


@program("peft", "transformers")
def peft_lora():
    import peft
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=99,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    model = transformers.LlamaForCausalLM(config)
    lora = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1)
    return Training(peft.get_peft_model(model, lora), lambda n: {"input_ids": tokens()(n)[0]})


@program("peft", "transformers")
def peft_ia3():
    import peft
    import transformers

    config = transformers.BertConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
    )
    tuned = peft.IA3Config(
        target_modules=["query", "output.dense"], feedforward_modules=["output.dense"]
    )
    model = peft.get_peft_model(transformers.BertModel(config), tuned)
    return Training(model, lambda n: {"input_ids": tokens()(n)[0]})


@program("sentence-transformers", "transformers")
def sentence_transformers_pooling():
    from sentence_transformers.models import Pooling

    def inputs(n):
        mask = torch.ones(n, 6, dtype=torch.long)
        mask[0, 4:] = 0
        return ({"token_embeddings": torch.randn(n, 6, 8), "attention_mask": mask},)

    pooling = Pooling(8, pooling_mode="mean")
    layer = nn.Linear(8, 8)

    def run(features):
        features["token_embeddings"] = layer(features["token_embeddings"])
        return pooling(features)["sentence_embedding"]

    return Training(run, inputs, layer.parameters())


@program("tab-transformer-pytorch")
def tab_transformer():
    from tab_transformer_pytorch import FTTransformer

    model = FTTransformer(
        categories=(4, 3), num_continuous=5, dim=16, dim_out=1, depth=1, heads=2, dim_head=8
    )
    return Training(model, lambda n: (torch.randint(0, 3, (4 * n, 2)), torch.randn(4 * n, 5)))


@program("pytorch-tabnet")
def tabnet():
    from pytorch_tabnet.tab_network import TabNet

    model = TabNet(
        input_dim=8,
        output_dim=3,
        n_d=4,
        n_a=4,
        n_steps=2,
        virtual_batch_size=4,
        group_attention_matrix=torch.eye(8),
    )
    return Training(model, rows(8))


@program("openai-whisper")
def openai_whisper():
    from whisper.model import ModelDimensions, Whisper

    sizes = ModelDimensions(
        n_mels=8,
        n_audio_ctx=10,
        n_audio_state=16,
        n_audio_head=2,
        n_audio_layer=1,
        n_vocab=50,
        n_text_ctx=12,
        n_text_state=16,
        n_text_head=2,
        n_text_layer=1,
    )
    return Training(Whisper(sizes), lambda n: (torch.randn(n, 8, 20), torch.randint(0, 50, (n, 6))))
