/* Calling a compiled kernel from Python, in about 0.2 µs.
 *
 * Every generated C++ kernel has one signature, so that no binding has to be generated with it and the kernel's source
 * needs no header of Python or torch: `void kernel(void **buffers, const int64_t *sizes)`.
 *
 *     launch = launcher(address, n_buffers)     the address is that of the kernel
 *     launch(t0, t1, ..., s0, s1, ...)          n_buffers tensors, then the sizes as ints
 *
 * A tensor is asked for its `data_ptr()`; whether it is contiguous, of the right dtype and on the CPU was settled by
 * the guards. Other threads run while the kernel does.
 *
 * In PyTorch: torch/_inductor/codecache.py (`CppPythonBindingsCodeCache`), which generates one for each kernel.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    void (*kernel)(void **buffers, const int64_t *sizes);
    Py_ssize_t n_buffers;
} Target;

static PyObject *data_ptr;               /* the interned string */

/* What `launcher` returns is this function, bound to a `Target` in a bytes object. */
static PyObject *
launch(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    Target target;
    memcpy(&target, PyBytes_AS_STRING(self), sizeof target);
    Py_ssize_t n_buffers = target.n_buffers, n_sizes = n - n_buffers;
    if (n_sizes < 0)
        return PyErr_Format(PyExc_TypeError, "this kernel takes %zd buffers, then sizes; got %zd arguments", n_buffers,
                            n);
    void *buffers[n_buffers + 1];
    int64_t sizes[n_sizes + 1];
    for (Py_ssize_t i = 0; i < n_buffers; i++) {
        PyObject *address = PyObject_CallMethodNoArgs(args[i], data_ptr);
        buffers[i] = address ? PyLong_AsVoidPtr(address) : NULL;
        Py_XDECREF(address);
        if (buffers[i] == NULL && PyErr_Occurred())      /* NULL without an error: an empty tensor */
            return NULL;
    }
    for (Py_ssize_t i = 0; i < n_sizes; i++) {
        sizes[i] = PyLong_AsLongLong(args[n_buffers + i]);
        if (sizes[i] == -1 && PyErr_Occurred())
            return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    target.kernel(buffers, sizes);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef launch_method = {"launch", (PyCFunction)(void (*)(void))launch, METH_FASTCALL, "Runs a kernel."};

static PyObject *
launcher(PyObject *module, PyObject *args)
{
    Target target;
    unsigned long long address;
    if (!PyArg_ParseTuple(args, "Kn:launcher", &address, &target.n_buffers))
        return NULL;
    *(void **)&target.kernel = (void *)(uintptr_t)address;
    PyObject *bound = PyBytes_FromStringAndSize((char *)&target, sizeof target);
    PyObject *function = bound ? PyCFunction_New(&launch_method, bound) : NULL;
    Py_XDECREF(bound);
    return function;
}

static PyMethodDef methods[] = {
    {"launcher", launcher, METH_VARARGS, "launcher(address, n_buffers): a function that runs the kernel at `address`."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_launcher", "See _launcher.c.", -1, methods};

PyMODINIT_FUNC
PyInit__launcher(void)
{
    data_ptr = PyUnicode_InternFromString("data_ptr");
    return data_ptr ? PyModule_Create(&module) : NULL;
}
