/* What guards ask most, in C: does a tensor look as it did, is a dictionary unchanged?
 *
 *     looks_like(tensor, Parameter, float32, (768, 768), (768, 1), requires_grad, is_neg, device)
 *
 * `device` is the index of a CUDA device, or -1 for the CPU. A tensor's Python object holds the address of its C++ object, and
 * torch exports functions that read that: those for C (`aoti_torch_get_sizes`, ...), and two of C++. No header of torch is needed.
 * In PyTorch: torch/csrc/dynamo/guards.cpp (`TensorCheck::check`, behind `TENSOR_MATCH`; `DictGuardManager` and its dict tags).
 */
#include <Python.h>
#include <stdbool.h>
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"     /* of `ma_version_tag`, by Python 3.12 */

/* ---- a tensor ----------------------------------------------------------------------------------------------------- */

typedef int Read(void *tensor, void *found);     /* 0: it could be read */

/* How to read a tensor. `tensors.py` packs these in the same order (`configure`). */
static struct {
    Py_ssize_t place;                            /* of the C++ tensor in the Python object */
    Read *layout, *dtype, *device_type, *device_index, *dim, *sizes, *strides;
    bool (*is_neg)(void *tensor), (*requires_grad)(void *implementation);
} torch;

enum { STRIDED = 0 };                            /* torch's numbers: `c10::Layout`, `c10::DeviceType` */
enum { CPU = 0, CUDA = 1 };

/* What a tensor is compared with: the arguments of `looks_like` behind the tensor (`tensors.py`, `LooksLike`). */
enum { CLASS, DTYPE, SIZES, STRIDES, REQUIRES_GRAD, IS_NEGATED, DEVICE };

/* The Python objects `torch.float32`, ..., once they were seen, by torch's numbers. */
enum { MOST_DTYPES = 128 };
static PyObject *dtypes[MOST_DTYPES];

static PyObject *dtype_of(PyObject *tensor, int32_t number) {
    PyObject **known = &dtypes[number & (MOST_DTYPES - 1)];
    if (*known == NULL && (*known = PyObject_GetAttrString(tensor, "dtype")) == NULL)
        PyErr_Clear();
    return *known;
}

static bool same_numbers(PyObject *expected, const int64_t *found) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(expected); i++)
        if (PyLong_AsLongLong(PyTuple_GET_ITEM(expected, i)) != found[i])
            return false;
    return true;
}

static bool looks(PyObject *tensor, PyObject *const *expected) {
    if ((PyObject *)Py_TYPE(tensor) != expected[CLASS])
        return false;                            /* before anything is read: it may be no tensor */

    /* Others than strided ones have no strides to be read. */
    void *it = (char *)tensor + torch.place;
    int32_t layout, dtype, device, index;
    int64_t dim, *sizes, *strides;
    if (torch.layout(it, &layout) || layout != STRIDED)
        return false;
    if (torch.dtype(it, &dtype) || torch.device_type(it, &device) || torch.device_index(it, &index) ||
        torch.dim(it, &dim) || dim != PyTuple_GET_SIZE(expected[SIZES]) ||
        torch.sizes(it, &sizes) || torch.strides(it, &strides))
        return false;

    if (dtype_of(tensor, dtype) != expected[DTYPE])
        return false;
    if (!same_numbers(expected[SIZES], sizes) || !same_numbers(expected[STRIDES], strides))
        return false;
    if (torch.requires_grad(*(void **)it) != (expected[REQUIRES_GRAD] == Py_True))
        return false;
    if (torch.is_neg(it) != (expected[IS_NEGATED] == Py_True))
        return false;

    long wanted = PyLong_AsLong(expected[DEVICE]);
    return wanted < 0 ? device == CPU : device == CUDA && index == wanted;
}

static PyObject *looks_like(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    return PyBool_FromLong(looks(args[0], args + 1));
}

/* ---- dictionaries that have not changed ---------------------------------------------------------------------------- */

/* Up to 3.12, CPython gives a dictionary that changes a version that none has had. Later ones have no such number: there
 * `dict_versions` is False, and a check asks every guard at each call (`corners/dictionaries.py`). */
#if PY_VERSION_HEX < 0x030D0000
#  define DICT_VERSIONS 1
static uint64_t version(PyObject *dict) { return ((PyDictObject *)dict)->ma_version_tag; }
#else
#  define DICT_VERSIONS 0
static uint64_t version(PyObject *dict) { return 0; }
#endif

/* Where guards have looked. Either a dictionary: `it`, and the `holder` whose `__dict__` it is, or itself; with the holder's
 * type and the dictionary's version. Or a tensor, `holder`, and how it looked, `it` (a tuple); then `type` is NULL.
 * No reference is held: each is there as long as the dictionary that it was found in is unchanged, and that one stands
 * before it. */
typedef struct { PyObject *holder, *it; PyTypeObject *type; uint64_t version; } Found;

static PyObject *own_dict(PyObject *holder) {
    PyObject *dict = PyObject_GenericGetDict(holder, NULL);
    Py_XDECREF(dict);                            /* `holder` has it */
    PyErr_Clear();
    return dict;
}

static bool is_as_noted(const Found *found) {
    if (found->type == NULL)
        return looks(found->holder, &PyTuple_GET_ITEM(found->it, 0));
    return Py_TYPE(found->holder) == found->type &&
           (found->holder == found->it || own_dict(found->holder) == found->it) &&
           version(found->it) == found->version;
}

/* `noted`: a list of two bytes objects, each an array of `Found`: what holds now, and what was noted last. */
static PyObject *unchanged(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    PyObject *noted = Py_NewRef(PyList_GET_ITEM(args[0], 0));
    Found *found = (Found *)PyBytes_AS_STRING(noted), *end = found + PyBytes_GET_SIZE(noted) / sizeof *found;

    bool same = found < end;
    for (Py_ssize_t i = 1; same && i < n; i++)   /* the roots of this call, which were noted first */
        same = found[i - 1].holder == args[i];
    for (; same && found < end; found++)
        same = is_as_noted(found);

    Py_DECREF(noted);
    return PyBool_FromLong(same);
}

static Found noting(PyObject *holder, PyObject *it) {
    Found found = {holder, it, NULL, 0};
    if (PyDict_Check(it) && (holder == it || own_dict(holder) == it)) {
        found.type = Py_TYPE(holder);
        found.version = version(it);
    }
    else if (!PyTuple_Check(it) || holder == it)
        found.type = Py_TYPE(Py_None);           /* a `__dict__` or `_modules` of the user's making: never as it was */
    return found;
}

/* Kept is what was noted twice alike: then what was asked in between was asked of this, whatever other threads do. */
static PyObject *note(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    PyObject *noted = PyBytes_FromStringAndSize(NULL, n / 2 * sizeof(Found));
    if (noted == NULL)
        return NULL;
    Found *found = (Found *)PyBytes_AS_STRING(noted);
    for (PyObject *const *pair = args + 1; pair < args + n; pair += 2)
        *found++ = noting(pair[0], pair[1]);

    bool alike = PyObject_RichCompareBool(noted, PyList_GET_ITEM(args[0], 1), Py_EQ) == 1;
    PyList_SetItem(args[0], 0, alike ? Py_NewRef(noted) : PyBytes_FromString(""));
    PyList_SetItem(args[0], 1, noted);
    Py_RETURN_TRUE;
}

/* ---- the module ----------------------------------------------------------------------------------------------------- */

static PyObject *configure(PyObject *module, PyObject *packed) {
    memcpy(&torch, PyBytes_AS_STRING(packed), sizeof torch);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"looks_like", (PyCFunction)(void (*)(void))looks_like, METH_FASTCALL, "Does a tensor look like this? See above."},
    {"unchanged", (PyCFunction)(void (*)(void))unchanged, METH_FASTCALL, "unchanged(noted, *roots): is all that was noted as it was?"},
    {"note", (PyCFunction)(void (*)(void))note, METH_FASTCALL, "note(noted, holder, it, holder, it, ...): note where guards looked."},
    {"configure", configure, METH_O, "configure(struct.pack('n9P', place, layout, ...)): where torch's functions are."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_tensors", "See _tensors.c.", -1, methods};

PyMODINIT_FUNC PyInit__tensors(void) {
    PyObject *made = PyModule_Create(&module);
    if (made && PyModule_AddObjectRef(made, "dict_versions", DICT_VERSIONS ? Py_True : Py_False) < 0)
        Py_CLEAR(made);
    return made;
}
