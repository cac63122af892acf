"""Sound and other signals."""

import torch
from table import Training, program
from torch import nn


def sound(length=400):
    return lambda n: (torch.randn(2, 1, length + 160 * n),)


@program("julius")
def julius_filters():
    import julius

    gain = nn.Parameter(torch.ones(1))
    low, resample = julius.LowPassFilter(0.2), julius.ResampleFrac(4, 3)
    return Training(lambda x: resample(low(x * gain)), sound(), [gain])


@program("asteroid-filterbanks")
def asteroid_filterbanks():
    from asteroid_filterbanks import STFTFB, Encoder, ParamSincFB

    model = nn.Sequential(Encoder(STFTFB(32, 32, stride=16)), nn.Linear(1, 1))
    del model[1]
    sinc = Encoder(ParamSincFB(16, 31, stride=16))
    return Training(lambda x: (model(x), sinc(x)), sound(), [*sinc.parameters()])


@program("encodec")
def encodec_model():
    from encodec.modules import SEANetDecoder, SEANetEncoder

    options = {"dimension": 8, "n_filters": 4, "ratios": [4, 2], "lstm": 1, "n_residual_layers": 1}
    return Training(nn.Sequential(SEANetEncoder(**options), SEANetDecoder(**options)), sound(320))


@program("demucs")
def demucs_model():
    from demucs.hdemucs import HDemucs

    model = HDemucs(sources=["a"], channels=4, depth=4, nfft=256, audio_channels=1, dconv_depth=1)
    return Training(model, lambda n: (torch.randn(n, 1, 2048),))


@program("nnaudio")
def nnaudio_spectrogram():
    from nnAudio.features import STFT, MelSpectrogram

    stft = STFT(n_fft=64, hop_length=16, trainable=True, verbose=False, output_format="Magnitude")
    mel = MelSpectrogram(sr=8000, n_fft=64, n_mels=8, hop_length=16, verbose=False)
    return Training(lambda x: (stft(x[:, 0]), mel(x[:, 0])), sound(), stft.parameters())


@program("torch-audiomentations", "julius")
def audiomentations():
    from torch_audiomentations import Gain, PolarityInversion

    gain, turn = Gain(p=1.0, output_type="tensor"), PolarityInversion(p=1.0, output_type="tensor")
    scale = nn.Parameter(torch.ones(1))
    return Training(lambda x: turn(gain(x * scale, 8000), 8000), sound(), [scale])
