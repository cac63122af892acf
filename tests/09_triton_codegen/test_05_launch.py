"""A GPU kernel is started by the driver's own function. Here that function is one of ours, so no GPU is needed."""

from __future__ import annotations

import ctypes
import struct

import pytest
import torch

from course_lib import native

DRIVER = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p
)  # fmt: skip


class Driver:
    """Takes down what it is asked to start, and answers `status`."""

    def __init__(self, pointers: int, status: int = 0) -> None:
        self.pointers, self.status, self.started, self.otherwise = pointers, status, [], []
        self.entry = DRIVER(self.launch)

    def launch(self, function, *rest):
        *sizes, stream, arguments, _ = rest
        read = lambda address: ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))[0]
        self.started.append(
            (function, sizes, stream, [read(arguments[n]) for n in range(self.pointers)])
        )
        return self.status

    def starter(self, stream=lambda device: 1000 + device):
        module = native.load("course_lib.runtime._launcher")
        address = ctypes.cast(self.entry, ctypes.c_void_p).value
        target = struct.pack("PPIII0P", address, 77, 5, 128, 4096)
        return module.gpu_launcher(
            target, stream, 3, lambda *tensors: self.otherwise.append(tensors)
        )


def test_what_the_driver_is_told():
    driver, a, b = Driver(4), torch.empty(16), torch.empty(16)
    assert driver.starter()(a, b) is None
    # two more pointers than the kernel has tensors, which are 0
    assert driver.started == [
        (77, [5, 1, 1, 128, 1, 1, 4096], 1003, [a.data_ptr(), b.data_ptr(), None, None])
    ]
    assert not driver.otherwise


def test_the_stream_is_asked_for_in_each_call():
    driver, streams, a = Driver(1), [11, 12], torch.empty(16)
    start = driver.starter(lambda device: streams.pop(0))
    start(a)
    start(a)
    assert [stream for _, _, stream, _ in driver.started] == [11, 12]


def test_an_address_that_is_no_multiple_of_16_goes_another_way():
    driver, a = Driver(1), torch.empty(16)
    driver.starter()(a[1:])
    assert not driver.started
    assert [t.data_ptr() for (t,) in driver.otherwise] == [a.data_ptr() + 4]


def test_so_does_what_the_driver_refuses():
    driver, a = Driver(1, status=201), torch.empty(16)
    driver.starter()(a)
    assert driver.started
    assert [t is a for (t,) in driver.otherwise] == [True]


def test_errors_of_python_come_through():
    driver = Driver(1)
    with pytest.raises(AttributeError, match="data_ptr"):
        driver.starter()(3)
    with pytest.raises(ZeroDivisionError):
        driver.starter(lambda device: 1 // 0)(torch.empty(16))


@pytest.mark.gpu
def test_no_call_waits_for_the_gpu():
    import course_lib

    f = course_lib.compile(lambda x, at: torch.softmax(x[at] * 2, -1))
    x, at = torch.randn(64, 64, device="cuda"), torch.arange(64, device="cuda")
    torch.testing.assert_close(f(x, at), torch.softmax(x * 2, -1))
    torch.cuda.set_sync_debug_mode("error")
    try:
        f(x, at)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_an_index_out_of_range_is_told_by_a_later_call():
    import course_lib

    f = course_lib.compile(lambda x, at: x[at] + 1)
    x = torch.randn(8, device="cuda")
    with pytest.raises(IndexError, match="index out of range"):
        for _ in range(2):
            f(x, torch.full((4,), 99, device="cuda"))
            torch.cuda.synchronize()


@pytest.mark.gpu
def test_streams_and_views_that_begin_anywhere():
    import course_lib

    f = course_lib.compile(lambda x: x * 2 + 1)
    x = torch.randn(1000, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        got = f(x)
        torch.cuda.current_stream().synchronize()
    torch.testing.assert_close(got, x * 2 + 1)
    torch.testing.assert_close(f(x[1:]), x[1:] * 2 + 1)
    torch.testing.assert_close(f(x[3:]), x[3:] * 2 + 1)
