/* Does a tensor look as it did? One call in place of seven tests in Python: 0.05 µs instead of 0.35.
 *
 *     looks_like(tensor, Parameter, float32, (768, 768), (768, 1), requires_grad, is_neg, device)
 *
 * `device` is the index of a CUDA device, or -1 for the CPU. A tensor's Python object holds the address of its C++ object, and
 * torch exports functions that read that: those for C (`aoti_torch_get_sizes`, ...), and two of C++. No header of torch is needed.
 * In PyTorch: torch/csrc/dynamo/guards.cpp (`TensorCheck::check`, behind `TENSOR_MATCH`), built with torch's headers.
 */
#include <Python.h>
#include <stdbool.h>

typedef int Read(void *tensor, void *found);     /* 0: it could be read */
static struct {
    Py_ssize_t place;                            /* of the C++ tensor in the Python object */
    Read *layout, *dtype, *device_type, *device_index, *dim, *sizes, *strides;
    bool (*is_neg)(void *tensor), (*requires_grad)(void *implementation);
} torch;
static PyObject *dtypes[128];                    /* the Python objects, once they were seen, by torch's numbers */

static bool same_numbers(PyObject *expected, const int64_t *found) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(expected); i++)
        if (PyLong_AsLongLong(PyTuple_GET_ITEM(expected, i)) != found[i])
            return false;
    return true;
}

static PyObject *looks_like(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    if (n != 8)
        return PyErr_Format(PyExc_TypeError, "looks_like takes 8 arguments; got %zd", n);
    if ((PyObject *)Py_TYPE(args[0]) != args[1])
        Py_RETURN_FALSE;
    void *it = (char *)args[0] + torch.place;
    int32_t layout, dtype, device, index;
    int64_t dim, *sizes, *strides;
    if (torch.layout(it, &layout) || layout != 0 ||          /* not `torch.strided`: no strides to be read */
        torch.dtype(it, &dtype) || torch.device_type(it, &device) || torch.device_index(it, &index) || torch.dim(it, &dim) ||
        dim != PyTuple_GET_SIZE(args[3]) || torch.sizes(it, &sizes) || torch.strides(it, &strides))
        Py_RETURN_FALSE;
    if (dtypes[dtype & 127] == NULL && (dtypes[dtype & 127] = PyObject_GetAttrString(args[0], "dtype")) == NULL)
        return NULL;
    long wanted = PyLong_AsLong(args[7]);
    return PyBool_FromLong(dtypes[dtype & 127] == args[2] && same_numbers(args[3], sizes) && same_numbers(args[4], strides) &&
                           torch.requires_grad(*(void **)it) == (args[5] == Py_True) && torch.is_neg(it) == (args[6] == Py_True) &&
                           (wanted < 0 ? device == 0 : device == 1 && index == wanted));
}

static PyObject *configure(PyObject *module, PyObject *packed) {
    memcpy(&torch, PyBytes_AS_STRING(packed), sizeof torch);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"looks_like", (PyCFunction)(void (*)(void))looks_like, METH_FASTCALL, "Does a tensor look like this? See above."},
    {"configure", configure, METH_O, "configure(struct.pack('n9P', place, layout, ...)): where torch's functions are."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_tensors", "See _tensors.c.", -1, methods};

PyMODINIT_FUNC PyInit__tensors(void) { return PyModule_Create(&module); }
