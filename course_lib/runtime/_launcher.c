/* Calling a compiled kernel from Python, in about 0.2 µs.
 *
 * Every generated C++ kernel has one signature, so that no binding has to be generated with it and the kernel's source
 * needs no header of Python or torch: `void kernel(void **buffers, const int64_t *sizes)`.
 *
 *     launcher = Launcher(address, n_buffers)   the address is that of the kernel
 *     launcher(t0, t1, ..., s0, s1, ...)        n_buffers tensors (or addresses as ints), then the sizes as ints
 *
 * A tensor is asked for its `data_ptr()`; whether it is contiguous, of the right dtype and on the CPU was settled by
 * the guards. Other threads run while the kernel does.
 *
 * In PyTorch: torch/_inductor/codecache.py (`CppPythonBindingsCodeCache`), which generates one for each kernel.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>

typedef void (*Kernel)(void **buffers, const int64_t *sizes);

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Kernel kernel;
    Py_ssize_t n_buffers;
} Launcher;

static PyObject *data_ptr;               /* the interned string */

/* The address of argument number `i`; NULL with an exception if it is no buffer. (NULL without one: an empty tensor.)
*/
static void *
address_of(PyObject *argument, Py_ssize_t i)
{
    if (PyLong_Check(argument))
        return PyLong_AsVoidPtr(argument);
    PyObject *address = PyObject_CallMethodNoArgs(argument, data_ptr);
    if (address == NULL) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError))
            PyErr_Format(PyExc_TypeError, "argument %zd is a buffer: expected a tensor or an address, got %.100s", i,
                         Py_TYPE(argument)->tp_name);
        return NULL;
    }
    void *result = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    return result;
}

static PyObject *
launch(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Launcher *self = (Launcher *)object;
    Py_ssize_t n = PyVectorcall_NARGS(nargsf), n_buffers = self->n_buffers, n_sizes = n - n_buffers;
    if (kwnames && PyTuple_GET_SIZE(kwnames))
        return PyErr_Format(PyExc_TypeError, "a launcher takes no keyword arguments");
    if (n_sizes < 0)
        return PyErr_Format(PyExc_TypeError, "this kernel takes %zd buffers, then sizes; got %zd arguments", n_buffers,
                            n);
    void *buffers[n_buffers + 1];
    int64_t sizes[n_sizes + 1];
    for (Py_ssize_t i = 0; i < n_buffers; i++) {
        buffers[i] = address_of(args[i], i);
        if (buffers[i] == NULL && PyErr_Occurred())
            return NULL;
    }
    for (Py_ssize_t i = 0; i < n_sizes; i++) {
        sizes[i] = PyLong_AsLongLong(args[n_buffers + i]);
        if (sizes[i] == -1 && PyErr_Occurred())
            return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    self->kernel(buffers, sizes);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *
new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"address", "n_buffers", NULL};
    PyObject *address;
    Py_ssize_t n_buffers;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!n:Launcher", names, &PyLong_Type, &address, &n_buffers))
        return NULL;
    void *kernel = PyLong_AsVoidPtr(address);
    if (kernel == NULL || n_buffers < 0)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "a launcher needs an address that is not 0, "
                                                      "and a number of buffers that is not negative");
    Launcher *self = (Launcher *)type->tp_alloc(type, 0);
    if (self) {
        self->vectorcall = launch;
        self->kernel = (Kernel)kernel;
        self->n_buffers = n_buffers;
    }
    return (PyObject *)self;
}

static PyTypeObject LauncherType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "course_lib.runtime._launcher.Launcher",
    .tp_doc = "Launcher(address, n_buffers): a callable that runs the kernel at `address`.",
    .tp_basicsize = sizeof(Launcher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Launcher, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = new,
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_launcher", "See _launcher.c.", -1, NULL};

PyMODINIT_FUNC
PyInit__launcher(void)
{
    data_ptr = PyUnicode_InternFromString("data_ptr");
    if (data_ptr == NULL || PyType_Ready(&LauncherType) < 0)
        return NULL;
    PyObject *m = PyModule_Create(&module);
    if (m && PyModule_AddObjectRef(m, "Launcher", (PyObject *)&LauncherType) < 0)
        Py_CLEAR(m);
    return m;
}
