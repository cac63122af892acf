"""Real models with tiny configurations and random weights: does capture keep them whole, and is what we compile right?

    python tests/tools/real_models.py [NAME ...] [--out FILE] [--parts capture,back] [--control]

Each model runs in a process of its own, for at most `--limit` seconds of CPU time; a JSON line for each is added to FILE (models
that are in it are skipped), and `--count FILE` sums it up. Needs `transformers`; names that begin with `tv/` need torchvision,
with `timm/` timm, in the folder VISION_SITE if they are not installed. For each model
- three sizes of fresh random inputs go through capture alone: right? as many graphs as real `torch.compile`?
- the default backend takes a step in train mode, with dropout and the same seed as eager: outputs, gradients, buffers.
"""

import argparse
import copy
import inspect
import json
import logging
import os
import random
import resource
import signal
import sys
import time
import traceback
import warnings

warnings.simplefilter("ignore")

NAMES = {
    0: "pad_token_id",
    1: "bos_token_id decoder_start_token_id",
    2: """
        num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers
        num_encoder_layers num_key_value_heads num_experts_per_tok eos_token_id decoder_num_hidden_layers
    """,
    3: "num_labels",
    4: """
        num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads num_experts
        num_local_experts n_routed_experts decoder_num_attention_heads time_step_rank
    """,
    8: "d_kv head_dim kv_channels patch_size state_size sliding_window num_mel_bins",
    10: "num_queries",
    20: "max_source_positions max_target_positions",
    32: """
        hidden_size d_model dim n_embd emb_dim embed_dim embedding_size word_embed_proj_dim image_size
        moe_intermediate_size shared_expert_intermediate_size projection_dim decoder_hidden_size encoder_hidden_size
        lm_head_dim vision_embed_dim embedding_dim text_embed_dim
    """,
    64: """
        hidden_dim intermediate_size d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim d_inner n_inner
        max_position_embeddings n_positions n_ctx max_seq_len decoder_intermediate_size ffn_hidden_size
        feed_forward_hidden_size max_source_length
    """,
    99: "vocab_size vocab_size_per_layer_input",
}
SIZES = {name: size for size, names in NAMES.items() for name in names.split()}
"""Sizes that a configuration may have, and the tiny ones they get."""
IMAGE = "pixel_values"
NAMES_OF_MODELS = """
    albert arcee bert biogpt bitnet bloom codegen cohere cohere2 convbert ctrl deberta deberta-v2 deepseek_v2 deepseek_v3
    diffllama distilbert doge dots1 electra ernie ernie4_5 esm exaone4 falcon falcon_mamba flaubert fnet gemma gemma2
    gemma3_text glm glm4 glm4_moe gpt2 gpt_bigcode gpt_neo gpt_neox gpt_oss gptj granite granitemoe helium ibert jamba
    layoutlm lilt llama mamba mamba2 megatron-bert minimax ministral mistral mixtral mobilebert modernbert mpnet mpt mra
    nemotron nystromformer olmo olmo2 olmoe opt openai-gpt persimmon phi phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_moe
    qwen3_next recurrent_gemma rembert roberta roc_bert roformer rwkv seed_oss smollm3 splinter squeezebert stablelm
    starcoder2 xglm xlm xlm-roberta xlnet xlstm xmod yoso zamba2 bamba falcon_h1 granitemoehybrid lfm2 apertus
    hunyuan_v1_dense bart blenderbot m2m_100 marian mbart mvp pegasus pegasus_x plbart t5 umt5 longt5 led bigbird_pegasus
    prophetnet nllb-moe switch_transformers t5gemma big_bird longformer reformer funnel canine perceiver lxmert visual_bert
    vit deit beit data2vec-vision dinov2 dinov2_with_registers dinov3_vit vit_mae vit_msn yolos ijepa pixio hiera videomae
    timesformer vivit vjepa2 vilt imagegpt swin swinv2 donut-swin convnext convnextv2 resnet regnet mobilenet_v1
    mobilenet_v2 mobilevit mobilevitv2 segformer poolformer pvt pvt_v2 levit cvt van efficientnet bit focalnet swiftformer
    textnet hgnet_v2 swin2sr dpt depth_anything glpn zoedepth upernet maskformer mask2former detr table-transformer
    conditional_detr deformable_detr rt_detr sam superpoint vitpose clip siglip siglip2 blip blip-2 align altclip
    chinese_clip clipseg groupvit owlvit owlv2 x_clip flava bridgetower llava git idefics3 paligemma qwen2_vl florence2
    instructblip kosmos-2 wav2vec2 hubert wavlm unispeech-sat sew data2vec-audio wav2vec2-conformer wav2vec2-bert whisper
    moonshine speech_to_text encodec dac mimi audio-spectrogram-transformer clap vits univnet speecht5 seamless_m4t musicgen
    fastspeech2_conformer decision_transformer time_series_transformer autoformer informer patchtst patchtsmixer timesfm
    markuplm layoutlmv3 tapas bros tv/alexnet tv/densenet121 tv/efficientnet_b0 tv/efficientnet_v2_s tv/googlenet
    tv/inception_v3 tv/mnasnet0_5 tv/mobilenet_v2 tv/mobilenet_v3_small tv/regnet_y_400mf tv/resnet18 tv/resnext50_32x4d
    tv/shufflenet_v2_x0_5 tv/squeezenet1_1 tv/swin_t tv/swin_v2_t tv/vgg11_bn tv/vit_b_32 tv/maxvit_t tv/convnext_tiny
    tv/fcn_resnet50 tv/deeplabv3_mobilenet_v3_large tv/lraspp_mobilenet_v3_large timm/test_vit timm/test_resnet
    timm/test_efficientnet timm/test_byobnet timm/test_convnext timm/test_nfnet
"""
MODELS = {name: {} for name in NAMES_OF_MODELS.split()}
"""Model → what its configuration needs besides; `_class`: the class, if it is not the usual one."""
MODELS |= {
    "codegen": {"rotary_dim": 4, "n_head": 4},
    "deberta": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "deepseek_v2": {
        "num_key_value_heads": 4,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "n_group": 1,
        "topk_group": 1,
        "head_dim": 8,
    },
    "deepseek_v3": {
        "num_key_value_heads": 4,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "n_group": 1,
        "topk_group": 1,
        "head_dim": 8,
        "first_k_dense_replace": 1,
    },
    "esm": {"vocab_size": 99, "position_embedding_type": "rotary"},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2},
    "gptj": {"rotary_dim": 4},
    "jamba": {
        "num_hidden_layers": 2,
        "attn_layer_offset": 1,
        "attn_layer_period": 2,
        "expert_layer_offset": 1,
        "expert_layer_period": 2,
        "mamba_d_state": 4,
    },
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 4},
    "big_bird": {"block_size": 4, "num_random_blocks": 1},
    "longformer": {"attention_window": 4},
    "reformer": {
        "attn_layers": ["local", "lsh"],
        "axial_pos_embds": False,
        "attention_head_size": 8,
        "feed_forward_size": 64,
        "lsh_attn_chunk_length": 4,
        "local_attn_chunk_length": 4,
        "num_hashes": 1,
        "num_buckets": 2,
        "is_decoder": True,
    },
    "funnel": {"block_sizes": [1, 1], "d_head": 8},
    "perceiver": {
        "num_latents": 4,
        "d_latents": 32,
        "num_self_attends_per_block": 1,
        "num_self_attention_heads": 2,
        "num_cross_attention_heads": 2,
        "_class": "PerceiverForMaskedLM",
    },
    "hiera": {
        "image_size": [64, 64],
        "patch_size": [7, 7],
        "depths": [1, 1, 1, 1],
        "embed_dim": 16,
        "num_heads": [1, 1, 1, 1],
    },
    "videomae": {"num_frames": 4, "_class": "VideoMAEForVideoClassification"},
    "timesformer": {"num_frames": 4, "_class": "TimesformerForVideoClassification"},
    "vivit": {"num_frames": 4, "tubelet_size": [2, 8, 8], "_class": "VivitForVideoClassification"},
    "vjepa2": {
        "crop_size": 32,
        "frames_per_clip": 4,
        "pred_hidden_size": 32,
        "pred_num_attention_heads": 2,
        "pred_num_hidden_layers": 2,
    },
    "swin": {
        "embed_dim": 16,
        "depths": [2, 1],
        "num_heads": [2, 2],
        "patch_size": 4,
        "window_size": 4,
    },
    "swinv2": {
        "embed_dim": 16,
        "depths": [2, 1],
        "num_heads": [2, 2],
        "patch_size": 4,
        "window_size": 4,
    },
    "donut-swin": {
        "embed_dim": 16,
        "depths": [2, 1],
        "num_heads": [2, 2],
        "patch_size": 4,
        "window_size": 4,
    },
    "convnext": {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]},
    "convnextv2": {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]},
    "resnet": {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]},
    "regnet": {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1], "groups_width": 8},
    "mobilenet_v1": {"image_size": 64, "depth_multiplier": 0.25},
    "mobilenet_v2": {"image_size": 64, "depth_multiplier": 0.25},
    "mobilevit": {
        "image_size": 64,
        "hidden_sizes": [16, 16, 16],
        "neck_hidden_sizes": [8, 8, 16, 16, 16, 16, 32],
        "patch_size": 2,
        "hidden_size": None,
    },
    "mobilevitv2": {"image_size": 64, "patch_size": 2, "width_multiplier": 0.25},
    "segformer": {
        "hidden_sizes": [8, 16, 16, 16],
        "depths": [1, 1, 1, 1],
        "num_attention_heads": [1, 2, 2, 2],
    },
    "poolformer": {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]},
    "pvt": {
        "hidden_sizes": [8, 16, 16, 16],
        "depths": [1, 1, 1, 1],
        "num_attention_heads": [1, 2, 2, 2],
        "image_size": 64,
        "patch_size": 4,
    },
    "pvt_v2": {
        "hidden_sizes": [8, 16, 16, 16],
        "depths": [1, 1, 1, 1],
        "num_attention_heads": [1, 2, 2, 2],
        "image_size": 64,
    },
    "levit": {
        "image_size": 64,
        "patch_size": 16,
        "hidden_sizes": [16, 16, 16],
        "num_attention_heads": [2, 2, 2],
        "depths": [1, 1, 1],
        "key_dim": [8, 8, 8],
        "down_ops": [["Subsample", 8, 2, 4, 2, 2], ["Subsample", 8, 2, 4, 2, 2]],
    },
    "cvt": {"embed_dim": [16, 16, 32], "depth": [1, 1, 1], "num_heads": [1, 2, 2]},
    "efficientnet": {"image_size": 64, "hidden_dim": 1280},
    "bit": {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1], "num_groups": 4},
    "focalnet": {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1], "patch_size": 4},
    "swiftformer": {"image_size": 64, "depths": [1, 1, 1, 1], "embed_dims": [16, 16, 16, 16]},
    "swin2sr": {
        "embed_dim": 16,
        "depths": [2, 1],
        "num_heads": [2, 2],
        "patch_size": 1,
        "window_size": 8,
    },
    "glpn": {
        "hidden_sizes": [8, 16, 16, 16],
        "depths": [1, 1, 1, 1],
        "num_attention_heads": [1, 2, 2, 2],
    },
    "detr": {
        "use_timm_backbone": False,
        "use_pretrained_backbone": False,
        "backbone": None,
        "backbone_config": {
            "model_type": "resnet",
            "hidden_sizes": [8, 16, 16, 16],
            "depths": [1, 1, 1, 1],
            "embedding_size": 8,
            "out_features": ["stage4"],
        },
    },
    "wav2vec2": {"mask_time_length": 2, "conv_dim": [16, 16, 16, 16, 16, 16, 16]},
    "hubert": {"mask_time_length": 2, "conv_dim": [16, 16, 16, 16, 16, 16, 16]},
    "wavlm": {"mask_time_length": 2, "conv_dim": [16, 16, 16, 16, 16, 16, 16]},
    "unispeech-sat": {"mask_time_length": 2, "conv_dim": [16, 16, 16, 16, 16, 16, 16]},
    "sew": {"mask_time_length": 2},
    "data2vec-audio": {"mask_time_length": 2, "conv_dim": [16, 16, 16, 16, 16, 16, 16]},
    "wav2vec2-conformer": {"mask_time_length": 2, "conv_dim": [16, 16, 16, 16, 16, 16, 16]},
    "whisper": {"max_target_positions": 64},
}


def shrink(config):
    """The values of `SIZES` that `config` has, and the same of the configurations in it."""
    from transformers import PreTrainedConfig

    values = {}
    for key, old in list(vars(config).items()):
        if isinstance(old, PreTrainedConfig):
            values[key] = shrink(old)
        elif (
            key in SIZES
            and (isinstance(old, int) or (old is None and key.endswith("token_id")))
            and not isinstance(old, bool)
        ):
            values[key] = SIZES[key]
    for key, attribute in config.attribute_map.items():
        if (
            key in SIZES
            and attribute not in values
            and isinstance(getattr(config, attribute, None), int)
        ):
            values[attribute] = SIZES[key]
    return values


def merge(values, more):
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(values.get(key), dict):
            merge(values[key], value)
        else:
            values[key] = value
    return values


def transformer(name, over):
    import transformers
    from transformers.models.auto import modeling_auto as auto

    over = dict(over)
    kind = over.pop("_class", None)
    inputs = over.pop("_inputs", None)
    cls = type(transformers.AutoConfig.for_model(name))
    values = shrink(cls())
    values = merge(values, over)
    config = cls(**{k: v for k, v in values.items() if v is not None})
    if kind is None:
        for table in (
            auto.MODEL_FOR_CAUSAL_LM_MAPPING,
            auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
            auto.MODEL_FOR_MASKED_LM_MAPPING,
            auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING,
            auto.MODEL_MAPPING,
        ):
            if cls in table:
                kind = table[cls]
                break
        if isinstance(kind, (tuple, list)):
            kind = kind[0]
    else:
        kind = getattr(transformers, kind)
    return kind(config), inputs or (
        lambda turn: usual_inputs(model_kind=kind, config=config, turn=turn)
    )


def usual_inputs(model_kind, config, turn):
    import torch

    batch, length = (2, 3, 4)[turn], (16, 19, 22)[turn]
    main, names = model_kind.main_input_name, set(inspect.signature(model_kind.forward).parameters)
    text = getattr(config, "text_config", config)
    ids = lambda n=length: torch.randint(3, getattr(text, "vocab_size", None) or 99, (batch, n))
    out = {}
    if "input_ids" in names:
        mask = torch.ones(batch, length, dtype=torch.long)
        mask[0, : 3 + turn] = 0
        out |= {"input_ids": ids()}
        if "attention_mask" in names:
            out |= {"attention_mask": mask}
    if "decoder_input_ids" in names and getattr(config, "is_encoder_decoder", False):
        out |= {"decoder_input_ids": ids(length - 8)}
    if IMAGE in names:
        vision = getattr(config, "vision_config", config)
        side = getattr(vision, "image_size", None) or 64
        side = side if isinstance(side, (tuple, list)) else (side, side)
        frames = getattr(vision, "num_frames", None)
        channels = getattr(vision, "num_channels", 3)
        out |= {IMAGE: torch.randn(batch, *([frames] if frames else []), channels, *side)}
    if main == "input_values":
        out |= {"input_values": torch.randn(batch, 1200 + 160 * turn)}
    if main == "input_features":
        out |= {"input_features": torch.randn(batch, 8, 40)}
    return out


def vision(name, over):
    """A model of torchvision or timm. Their operators in C++ may not load; then they are declared, for none is called here."""
    import torch

    sys.path[:0] = filter(None, [os.environ.get("VISION_SITE")])
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    pairs = "roi_align ps_roi_align roi_pool ps_roi_pool deform_conv2d"
    for one in ["qnms", "qroi_align", *pairs.split(), *(f"_{p}_backward" for p in pairs.split())]:
        library.define(one + "(Tensor a) -> Tensor")
    globals()["_library"] = library
    over, side = dict(over), over.get("_side", 64)
    over.pop("_side", None)
    kind, name = name.split("/")
    if kind == "tv":
        import torchvision

        model = torchvision.models.get_model(name, weights=None, **over)
    else:
        import timm

        model = timm.create_model(name, pretrained=False, **over)
    return model, lambda turn: {
        "x"
        if kind == "timm"
        else next(iter(inspect.signature(model.forward).parameters)): torch.randn(
            (2, 3, 4)[turn], 3, side, side
        )
    }


def flat(value):
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if hasattr(value, "values") and callable(value.values):
        return [t for v in value.values() for t in flat(v)]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in flat(v)]
    if type(value).__module__.startswith("transformers"):
        return [t for v in vars(value).values() for t in flat(v)]
    return []


def difference(got, want, tolerance):
    """What is different, in words; None if nothing is."""
    import torch

    if len(got) != len(want):
        return f"{len(got)} tensors for {len(want)}"
    worst = None
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        if a is None or b is None:
            if a is not b:
                return f"tensor {i}: {'none' if a is None else 'one'} where eager has {'none' if b is None else 'one'}"
            continue
        if a.shape != b.shape or a.dtype != b.dtype or a.requires_grad != b.requires_grad:
            found, expected = (
                f"{t.dtype}{tuple(t.shape)} {'with' if t.requires_grad else 'without'} gradient"
                for t in (a, b)
            )
            return f"tensor {i}: {found} for {expected}"
        if a.numel() == 0:
            continue
        a, b = (
            torch.view_as_real(t) if t.is_complex() else t.double()
            for t in (a.detach(), b.detach())
        )
        finite = b[b.isfinite()]
        scale = max(1e-3, finite.abs().max().item() if finite.numel() else 1.0)
        if not torch.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
            off = (a - b).nan_to_num(0).abs().max().item() / scale
            if worst is None or off > worst[0]:
                nans = f"{int(a.isnan().sum())} for {int(b.isnan().sum())} NaNs"
                worst = off, f"tensor {i} {tuple(b.shape)}: off by {off:.1e} of its largest, {nans}"
    return worst and worst[1]


def seeded(seed=0):
    import numpy
    import torch

    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)


def forward(call, inputs):
    seeded(1)
    return flat(call(**copy.deepcopy(inputs)))


def step(call, model, inputs, start):
    """Outputs, gradients and buffers of one training step from the state `start`."""
    import torch

    with torch.no_grad():
        for key, buffer in model.named_buffers():
            if key in start and start[key].shape == buffer.shape:
                buffer.copy_(start[key])
    model.zero_grad(set_to_none=True)
    outputs = forward(call, inputs)
    loss = sum(
        t.float().square().mean() * (1 + i)
        for i, t in enumerate(outputs)
        if t.is_floating_point() and t.requires_grad
    )
    loss.backward()
    return outputs, [p.grad for p in model.parameters()], [b.clone() for b in model.buffers()]


def one(name, options):
    """The row of one model."""
    import torch

    import course_lib as cl

    logging.disable(logging.ERROR)
    seeded()
    row = {"name": name}
    try:
        model, make = (vision if "/" in name else transformer)(name, MODELS[name])
        model.eval()
        turns = [make(i) for i in range(3)]
        row["parameters"] = sum(p.numel() for p in model.parameters())
        with torch.no_grad():
            want = [forward(model, x) for x in turns]
    except Exception as error:
        return row | {"unmade": words(error)}
    if "capture" in options.parts:
        with torch.no_grad():
            with cl.record() as trace:
                row |= dict(
                    zip(
                        ("ours", "ours_s", "capture_wrong"),
                        count(cl.compile, model, turns, want),
                        strict=True,
                    )
                )
            row["reasons"] = [str(b)[:900] for b in trace.graph_breaks][:4]
            if row["ours"] != [1, 2, 2] or options.control:  # else it cannot be better
                row |= dict(
                    zip(
                        ("torch", "torch_s", "torch_wrong"),
                        count(torch.compile, model, turns, want),
                        strict=True,
                    )
                )
    if "back" in options.parts:
        cl.reset()
        row |= train(cl.compile(model), model, turns[0])
    return row


def count(compiler, model, turns, want, **settings):
    """Graphs and seconds after each input, and what was wrong."""
    graphs, counts, seconds, wrong = [], [], [], None
    compiled = compiler(model, backend=lambda gm, _: graphs.append(gm) or gm.forward, **settings)
    begin = time.process_time()
    try:
        for x, y in zip(turns, want, strict=False):
            wrong = wrong or difference(forward(compiled, x), y, 1e-5)
            counts.append(len(graphs))
            seconds.append(round(time.process_time() - begin, 2))
    except Exception as error:
        wrong = crash(error)
    return counts, seconds, wrong


def train(compiled, model, inputs):
    """A step in train mode, with dropout, against eager's with the same seed."""
    model.train()
    start = {k: v.clone() for k, v in model.named_buffers()}
    try:
        want = step(model, model, inputs, start)
        again = step(model, model, inputs, start)
    except Exception as error:
        return {"train": words(error)}
    if not all(difference(a, b, 1e-6) is None for a, b in zip(again, want, strict=True)):
        return {"train": "eager differs from eager"}
    row, begin = {"train_wrong": None}, time.process_time()
    try:
        for what, a, b in zip(
            ("outputs", "gradients", "buffers"),
            step(compiled, model, inputs, start),
            want,
            strict=True,
        ):
            off = difference(a, b, 1e-3 if what == "gradients" else 1e-4)
            row["train_wrong"] = row["train_wrong"] or (off and f"{what}: {off}")
    except Exception as error:
        row["train_wrong"] = crash(error)
    entries = [entry for code in compiled._course_compiler.codes.values() for entry in code.entries]
    row["train_graphs"] = sum(entry.result.operations > 0 for entry in entries)
    return row | {"train_s": round(time.process_time() - begin, 2)}


def words(error):
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def crash(error):
    lines = traceback.format_exception(error)
    return "CRASH " + " ".join(str(error).split())[:300] + " | " + "".join(lines)[-2500:]


def apart(work, limit):
    """What `work` gives, run in a child process: this one has imported everything already, and stays as it was."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        with os.fdopen(writing, "w") as file:
            file.write(json.dumps(work()))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    status = os.waitpid(child, 0)[1]
    return (
        json.loads(text)
        if text
        else {"died": f"over {limit} s" if status == signal.SIGXCPU else f"status {status}"}
    )


def rows_in(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def table_of(rows):
    """Counts only."""
    rows = [row for row in rows if "unmade" not in row]
    captured = [row for row in rows if row.get("ours")]
    trained = [row for row in rows if row.get("train_s")]
    # where ours is one, so is torch's
    pairs = [(row["ours"][0], (row.get("torch") or [1])[0]) for row in captured]
    lines = {
        "models": len(rows),
        "capture right": f"{sum(not row.get('capture_wrong') for row in captured)} of {len(captured)}",
        "one graph": sum(ours == 1 for ours, _ in pairs),
        "as many graphs as torch.compile": sum(ours == real for ours, real in pairs),
        "fewer": sum(ours < real for ours, real in pairs),
        "more": sum(ours > real for ours, real in pairs),
        "training step right": f"{sum(not row['train_wrong'] for row in trained)} of {len(trained)}",
        "over the time limit": sum("died" in row for row in rows),
    }
    return "\n".join(
        ["| | models |", "|---|---|", *(f"| {what} | {count} |" for what, count in lines.items())]
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs="*")
    parser.add_argument("--parts", default="capture,back")
    parser.add_argument("--out")
    parser.add_argument(
        "--control",
        action="store_true",
        help="count torch's graphs even where ours cannot be fewer",
    )
    parser.add_argument("--count", help="sum up this file")
    parser.add_argument("--limit", type=int, default=50)
    options = parser.parse_args()
    if options.count:
        return print(table_of(rows_in(options.count)))
    import torch._dynamo
    import transformers.modeling_utils
    import transformers.models.auto.modeling_auto  # noqa: F401

    import course_lib  # noqa: F401

    torch.set_num_threads(1)
    done = set()
    if options.out and os.path.exists(options.out):
        done = {row["name"] for row in rows_in(options.out)}
    for name in options.words or MODELS:
        if name in done:
            continue
        begin = time.time()
        row = apart(lambda name=name: one(name, options), options.limit) or {"name": name}
        row.setdefault("name", name)
        row["wall"] = round(time.time() - begin, 1)
        if options.out:
            with open(options.out, "a") as file:
                file.write(json.dumps(row) + "\n")
        print(
            {
                k: v if not isinstance(v, str) else v[:160]
                for k, v in row.items()
                if v not in (None, [])
            },
            flush=True,
        )


if __name__ == "__main__":
    main()
