"""Images: models, losses, augmentation, geometry."""

import torch
from table import Training, images, program, rows
from torch import nn


@program("timm", "torchvision")
def timm_convnext():
    import timm

    return Training(timm.create_model("test_convnext"), images(64))


@program("timm", "torchvision")
def timm_vit():
    import timm

    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, depth=2, num_classes=5, drop_path_rate=0.1
    )
    return Training(model, images(32))


@program("timm", "torchvision")
def timm_features():
    import timm

    return Training(timm.create_model("test_resnet", features_only=True), images(64))


@program("torchvision")
def torchvision_resnet():
    import torchvision

    return Training(torchvision.models.resnet18(num_classes=5), images(32))


@program("torchvision")
def torchvision_transforms():
    from torchvision.transforms import v2

    change = v2.Compose([v2.Normalize([0.5] * 3, [0.5] * 3), v2.CenterCrop(16), v2.Grayscale(3)])
    layer = nn.Conv2d(3, 4, 3)
    return Training(lambda x: change(layer(x)[:, :3]), images(24), layer.parameters())


@program("segmentation-models-pytorch", "timm", "torchvision")
def smp_unet():
    import segmentation_models_pytorch as smp

    model = smp.Unet("resnet18", encoder_weights=None, classes=2, decoder_channels=(16, 8, 8, 4, 4))
    return Training(model, images(32))


@program("segmentation-models-pytorch", "timm", "torchvision")
def smp_dice_loss():
    import segmentation_models_pytorch as smp

    loss = smp.losses.DiceLoss(mode="multiclass", from_logits=True)
    layer = nn.Conv2d(3, 4, 3, padding=1)
    return Training(
        lambda x, y: loss(layer(x), y),
        lambda n: (torch.randn(n, 3, 16, 16), torch.randint(0, 4, (n, 16, 16))),
        layer.parameters(),
    )


@program("kornia")
def kornia_filters():
    import kornia

    def run(x):
        x = kornia.filters.gaussian_blur2d(x, (3, 3), (1.0, 1.0))
        edges = kornia.filters.sobel(x)
        return (
            kornia.color.rgb_to_hsv(x.sigmoid()),
            edges,
            kornia.enhance.adjust_gamma(x.abs(), 2.0),
        )

    layer = nn.Conv2d(3, 3, 3, padding=1)
    return Training(lambda x: run(layer(x)), images(16), layer.parameters())


@program("kornia")
def kornia_augmentation():
    import kornia.augmentation as augmentation

    model = nn.Sequential(
        augmentation.RandomHorizontalFlip(p=0.5),
        augmentation.ColorJitter(0.1, 0.1, 0.1, 0.1, p=0.5),
        augmentation.RandomAffine(10.0, p=1.0),
    )
    layer = nn.Conv2d(3, 3, 3, padding=1)
    return Training(lambda x: model(layer(x).sigmoid()), images(16), layer.parameters())


@program("kornia")
def kornia_geometry():
    import kornia

    def run(points, angle):
        rotation = kornia.geometry.conversions.axis_angle_to_rotation_matrix(angle)
        moved = kornia.geometry.linalg.transform_points(
            nn.functional.pad(rotation, (0, 1, 0, 1)) + torch.eye(4), points
        )
        return kornia.geometry.conversions.rotation_matrix_to_quaternion(rotation), moved

    angle = nn.Parameter(torch.randn(1, 3))
    return Training(run, lambda n: (torch.randn(1, 4 * n, 3), angle), [angle])


@program("vit-pytorch")
def vit_pytorch_vit():
    from vit_pytorch import ViT

    model = ViT(
        image_size=32,
        patch_size=8,
        num_classes=5,
        dim=32,
        depth=1,
        heads=2,
        mlp_dim=32,
        dropout=0.1,
    )
    return Training(model, images(32))


@program("vit-pytorch")
def vit_pytorch_max_vit():
    from vit_pytorch.cct import CCT

    model = CCT(
        img_size=32,
        embedding_dim=32,
        n_conv_layers=1,
        num_layers=1,
        num_heads=2,
        mlp_ratio=1.0,
        num_classes=5,
    )
    return Training(model, images(32))


@program("efficientnet-pytorch")
def efficientnet():
    from efficientnet_pytorch import EfficientNet

    return Training(EfficientNet.from_name("efficientnet-b0", num_classes=5), images(32))


@program("denoising-diffusion-pytorch")
def denoising_diffusion():
    from denoising_diffusion_pytorch import GaussianDiffusion, Unet

    model = Unet(dim=16, dim_mults=(1, 2), flash_attn=False)
    diffusion = GaussianDiffusion(model, image_size=16, timesteps=10)
    return Training(diffusion, lambda n: (torch.rand(n, 3, 16, 16),))


@program("diffusers", "transformers")
def diffusers_unet():
    import diffusers

    model = diffusers.UNet2DModel(
        sample_size=16,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )
    return Training(model, lambda n: (torch.randn(n, 3, 16, 16), torch.tensor(3)))


@program("diffusers", "transformers")
def diffusers_autoencoder():
    import diffusers

    model = diffusers.AutoencoderKL(
        block_out_channels=(8,), norm_num_groups=4, latent_channels=2, layers_per_block=1
    )
    return Training(model, images(16))


@program("diffusers", "transformers")
def diffusers_scheduler():
    import diffusers

    scheduler = diffusers.DDPMScheduler(num_train_timesteps=20)
    layer = nn.Conv2d(3, 3, 3, padding=1)

    def run(x, noise, steps):
        noisy = scheduler.add_noise(x, noise, steps)
        return layer(noisy) - scheduler.get_velocity(x, noise, steps)

    def inputs(n):
        return torch.randn(n, 3, 8, 8), torch.randn(n, 3, 8, 8), torch.randint(0, 20, (n,))

    return Training(run, inputs, layer.parameters())


@program("monai")
def monai_unet():
    from monai.networks.nets import UNet

    model = UNet(
        spatial_dims=2,
        in_channels=1,
        out_channels=2,
        channels=(4, 8),
        strides=(2,),
        num_res_units=1,
    )
    return Training(model, images(16, 1))


@program("monai")
def monai_dice():
    from monai.losses import DiceCELoss

    loss = DiceCELoss(to_onehot_y=True, softmax=True)
    layer = nn.Conv2d(1, 3, 3, padding=1)
    return Training(
        lambda x, y: loss(layer(x), y),
        lambda n: (torch.randn(n, 1, 12, 12), torch.randint(0, 3, (n, 1, 12, 12))),
        layer.parameters(),
    )


@program("monai")
def monai_meta_tensor():
    from monai.data import MetaTensor

    layer = nn.Linear(4, 4)

    def run(x):
        y = x * 2 + 1
        return layer(y.as_tensor()) + len(y.meta)

    return Training(
        run, lambda n: (MetaTensor(torch.randn(n, 4), meta={"name": "a"}),), layer.parameters()
    )


@program("piq", "torchvision")
def piq_metrics():
    import piq

    layer = nn.Conv2d(3, 3, 3, padding=1)

    def run(x, y):
        x = layer(x).sigmoid()
        return piq.ssim(x, y, data_range=1.0), piq.psnr(x, y), piq.total_variation(x)

    return Training(
        run, lambda n: (torch.randn(n, 3, 32, 32), torch.rand(n, 3, 32, 32)), layer.parameters()
    )


@program("pytorch-msssim")
def ssim():
    from pytorch_msssim import SSIM

    loss = SSIM(data_range=1.0, channel=3)
    layer = nn.Conv2d(3, 3, 3, padding=1)
    return Training(
        lambda x, y: 1 - loss(layer(x).sigmoid(), y),
        lambda n: (torch.randn(n, 3, 24, 24), torch.rand(n, 3, 24, 24)),
        layer.parameters(),
    )


@program("pytorch-metric-learning")
def metric_learning():
    from pytorch_metric_learning.losses import ArcFaceLoss, NTXentLoss

    loss, other = ArcFaceLoss(4, 8), NTXentLoss()
    layer = nn.Linear(8, 8)

    def run(x, labels):
        return loss(layer(x), labels), other(layer(x), labels)

    return Training(
        run,
        lambda n: (torch.randn(4 * n, 8), torch.arange(4 * n) % 4),
        [*layer.parameters(), *loss.parameters()],
    )


@program("captum")
def captum_gradients():
    from captum.attr import IntegratedGradients

    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    method = IntegratedGradients(model)
    return Training(lambda x: method.attribute(x, target=1, n_steps=4), rows(8))


@program("ultralytics", "torchvision")
def ultralytics_blocks():
    from ultralytics.nn.modules import SPPF, C2f, Conv

    return Training(nn.Sequential(Conv(3, 8, 3, 2), C2f(8, 8), SPPF(8, 8)), images(16))
