/* Calling a compiled kernel from Python, in about 0.2 µs.
 *
 * Every generated C++ kernel has one signature, so that no binding has to be generated with it and the kernel's source
 * needs no header of Python or torch: `void kernel(void **buffers)`.
 *
 *     launch = launcher(struct.pack("Pn", address, n_buffers))
 *     launch(t0, t1, ...)                       n_buffers tensors
 *
 * A tensor is asked for its `data_ptr()`; whether it is contiguous, of the right dtype and on the CPU was settled by
 * the guards. Other threads run while the kernel does.
 *
 *     start = gpu_launcher(struct.pack("PPIIII", launch, function, programs, threads, shared, sizes), stream, device,
 *                          otherwise, programs_of)
 *     start(t0, t1, ..., s0, s1, ...)           a GPU kernel, through the driver's `launch` (cuLaunchKernel)
 *
 * This one starts a kernel on the stream that `stream(device)` names, and does not wait for it. Its last arguments, as many as
 * `sizes` says, are ints. If `programs_of` is not None, `programs_of(s0, s1, ...)` is how many programs this call starts.
 * In PyTorch: torch/_inductor/codecache.py (`CppPythonBindingsCodeCache`), runtime/static_triton_launcher.py.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    void (*kernel)(void **buffers);
    Py_ssize_t n_buffers;
} Target;

static PyObject *data_ptr;               /* the interned string */

/* The `data_ptr()` of each tensor; 0 after an error. */
static int addresses(PyObject *const *tensors, Py_ssize_t n, void **found) {
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *address = PyObject_CallMethodNoArgs(tensors[i], data_ptr);
        found[i] = address ? PyLong_AsVoidPtr(address) : NULL;
        Py_XDECREF(address);
        if (found[i] == NULL && PyErr_Occurred())        /* NULL without an error: an empty tensor */
            return 0;
    }
    return 1;
}

/* What `launcher` returns is this function, bound to a `Target` in a bytes object. */
static PyObject *launch(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    Target target;
    memcpy(&target, PyBytes_AS_STRING(self), sizeof target);
    if (n != target.n_buffers)
        return PyErr_Format(PyExc_TypeError, "this kernel takes %zd buffers; got %zd arguments", target.n_buffers, n);
    void *buffers[n + 1];
    if (!addresses(args, n, buffers))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    target.kernel(buffers);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef launch_method = {"launch", (PyCFunction)(void (*)(void))launch, METH_FASTCALL, "Runs a kernel."};

static PyObject *launcher(PyObject *module, PyObject *target) { return PyCFunction_New(&launch_method, target); }

typedef struct {
    int (*launch)(void *function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned, unsigned, unsigned shared,
                  void *stream, void **arguments, void **extra);
    void *function;
    unsigned programs, threads, shared, sizes;
} GpuTarget;

/* The values of ints, where the addresses of tensors would stand; 0 after an error. */
static int values(PyObject *const *ints, Py_ssize_t n, void **found) {
    for (Py_ssize_t i = 0; i < n; i++) {
        found[i] = (void *)(intptr_t)PyLong_AsLongLong(ints[i]);
        if (PyErr_Occurred())
            return 0;
    }
    return 1;
}

/* How many programs this call starts; -1 after an error. */
static long long count_programs(PyObject *self, const GpuTarget *target, PyObject *const *sizes) {
    PyObject *programs_of = PyTuple_GET_SIZE(self) > 4 ? PyTuple_GET_ITEM(self, 4) : Py_None;
    if (programs_of == Py_None)
        return target->programs;
    PyObject *count = PyObject_Vectorcall(programs_of, sizes, target->sizes, NULL);
    long long programs = count ? PyLong_AsLongLong(count) : -1;
    Py_XDECREF(count);
    return programs;
}

/* What `gpu_launcher` returns: this, bound to (a `GpuTarget` as bytes, stream, device, otherwise, programs_of). The kernel was
 * compiled for addresses that are multiples of 16. Where one is not, or the driver refuses, `otherwise(t0, ..., s0, ...)` has to
 * do it. */
static PyObject *start(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    GpuTarget target;
    memcpy(&target, PyBytes_AS_STRING(PyTuple_GET_ITEM(self, 0)), sizeof target);
    Py_ssize_t tensors = n - (Py_ssize_t)target.sizes;
    if (tensors < 0)
        return PyErr_Format(PyExc_TypeError, "this kernel takes %u sizes; got %zd arguments", target.sizes, n);
    void *buffers[n + 2], *arguments[n + 2];     /* two more, which Triton has for memory that our kernels do not ask for */
    buffers[n] = buffers[n + 1] = NULL;
    if (!addresses(args, tensors, buffers) || !values(args + tensors, n - tensors, buffers + tensors))
        return NULL;
    long long programs = count_programs(self, &target, args + tensors);
    if (programs < 0 && PyErr_Occurred())
        return NULL;
    if (programs <= 0)
        Py_RETURN_NONE;
    PyObject *stream = PyObject_CallOneArg(PyTuple_GET_ITEM(self, 1), PyTuple_GET_ITEM(self, 2));
    if (stream == NULL)
        return NULL;
    void *queue = PyLong_AsVoidPtr(stream);
    Py_DECREF(stream);
    uintptr_t bits = 0;
    for (Py_ssize_t i = 0; i < n + 2; i++)
        arguments[i] = &buffers[i];
    for (Py_ssize_t i = 0; i < tensors; i++)
        bits |= (uintptr_t)buffers[i];
    int problem = (bits & 15) != 0 || programs > INT32_MAX;
    if (!problem) {
        Py_BEGIN_ALLOW_THREADS
        problem = target.launch(target.function, (unsigned)programs, 1, 1, target.threads, 1, 1, target.shared, queue, arguments,
                                NULL);
        Py_END_ALLOW_THREADS
    }
    if (problem)
        return PyObject_Vectorcall(PyTuple_GET_ITEM(self, 3), args, n, NULL);
    Py_RETURN_NONE;
}

static PyMethodDef start_method = {"start", (PyCFunction)(void (*)(void))start, METH_FASTCALL, "Starts a GPU kernel."};

static PyObject *gpu_launcher(PyObject *module, PyObject *bound) { return PyCFunction_New(&start_method, bound); }

static PyMethodDef methods[] = {
    {"launcher", launcher, METH_O, "launcher(target): a function that runs the kernel at an address; see above."},
    {"gpu_launcher", gpu_launcher, METH_VARARGS, "gpu_launcher(...): a function that starts a GPU kernel; see above."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_launcher", "See _launcher.c.", -1, methods};

PyMODINIT_FUNC PyInit__launcher(void) {
    data_ptr = PyUnicode_InternFromString("data_ptr");
    return data_ptr ? PyModule_Create(&module) : NULL;
}
