/* The frame hook: run something else in the place of a Python frame.
 *
 * CPython evaluates every Python frame through one function pointer that a C extension may replace (PEP 523). Ours asks
 * this thread's watcher what to do with the frame. A watcher is a dict that is asked when it has no answer:
 *
 *     watcher[number(code)] = None                   run frames of this code as they are
 *     watcher[number(code)] = [(guard, head), ...]   the first pair whose guard(func, *args) is true: the frame never
 *                                                    runs; its result is what head(func, *args) returns
 *     otherwise: watcher(code, func, *args)          answers with the head to use this time, or None: run the frame
 *
 * `func` is the function being called and `args` are its parameters, flat: positional, keyword-only, then the *args tuple and
 * the **kwargs dict. Guards and the watcher run unobserved; heads, and all they call, are observed like any other code. A head
 * may also answer with AS_IT_IS: then the frame runs after all, with nobody watching.
 *
 * The library's own frames stand between those of the program. While the program runs below them they are hidden, so that
 * warnings, `sys._getframe`, `inspect` and `logging` find the program's frames only.
 * In PyTorch: torch/csrc/dynamo/eval_frame.c, eval_frame_cpp.cpp, cpython_defs.c and extra_state.cpp.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x03100000
#  error "the frame hook knows the frames of CPython 3.11 to 3.15 only"
#endif
#ifdef Py_GIL_DISABLED
#  error "the frame hook does not support free-threaded Python"
#endif
#define Py_BUILD_CORE                    /* the frame struct is not a public API, nor is the state of the garbage collector */
#undef _PyGC_FINALIZED                   /* 3.12 defines it twice */
#if PY_VERSION_HEX >= 0x030E0000
#  include <internal/pycore_interpframe.h>
#else
#  include <internal/pycore_frame.h>
#endif
#if PY_VERSION_HEX >= 0x030D0000
#  include <internal/pycore_ceval.h>     /* _PyEval_FrameClearAndPop */
#endif
#include <internal/pycore_interp.h>
#undef Py_BUILD_CORE
#include <opcode.h>

typedef struct _PyInterpreterFrame Frame;

/* ---- what differs from version to version: fields and functions by their newest names ----------------------------- */

#if PY_VERSION_HEX < 0x030D0000
#  define f_executable f_code
#  define instr_ptr prev_instr
#  define NEWEST_FRAME(ts) ((ts)->cframe->current_frame)
#else
#  define NEWEST_FRAME(ts) ((ts)->current_frame)
#endif
#if PY_VERSION_HEX < 0x030C0000
#  define f_funcobj f_func
#  define PyUnstable_Code_GetExtra _PyCode_GetExtra
#  define PyUnstable_Code_SetExtra _PyCode_SetExtra
#  define PyUnstable_Eval_RequestCodeExtraIndex _PyEval_RequestCodeExtraIndex
#endif

/* Since 3.14 a slot of a frame holds a tagged reference. Its low bit is set where the slot owns nothing: the object
   never dies, or somebody else keeps it alive. So a slot is no pointer: it must not be cast, copied or released as one. */
#if PY_VERSION_HEX >= 0x030E0000
#  define OBJECT(slot) PyStackRef_AsPyObjectBorrow(slot)
#else
#  define OBJECT(slot) ((PyObject *)(slot))
#endif

/* ---- running a frame, or getting rid of it ------------------------------------------------------------------------ */

static PyObject *return_stub;            /* a code object whose whole body is RETURN_VALUE (for 3.12) */

/* Get rid of a frame that never ran, and pass on `result` (NULL: an exception is set). Steals `result`. */
static PyObject *discard_frame(PyThreadState *ts, Frame *f, PyObject *result) {
#if PY_VERSION_HEX < 0x030C0000
    return result;                       /* 3.11: the caller clears the frame */
#elif PY_VERSION_HEX >= 0x030D0000
    _PyEval_FrameClearAndPop(ts, f);     /* it keeps the exception, whatever finalizers do meanwhile */
    return result;
#else
    /* In 3.12 the evaluator itself must clear and unlink the frame, with helpers that CPython does not export. So
       CPython does it: the result goes on the frame's value stack, and the frame "runs" a lone RETURN_VALUE. (There is
       room even where co_stacksize is 0: CPython keeps a slot free behind the newest frame.) */
    PyObject *error = PyErr_GetRaisedException();
    Py_SETREF(f->f_executable, (void *)Py_NewRef(return_stub));
    f->prev_instr = _PyCode_CODE((PyCodeObject *)return_stub) - 1;
    f->localsplus[f->stacktop++] = error ? Py_NewRef(Py_None) : result;
    result = _PyEval_EvalFrameDefault(ts, f, 0);

    /* There was no result: the None that stood for it goes, and the exception comes back. */
    if (error) {
        Py_CLEAR(result);
        PyErr_SetRaisedException(error);
    }
    return result;
#endif
}

static _PyFrameEvalFunction next_evaluator;  /* what was installed before us: CPython's own, or torch.compile's */

#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000
/* With a hook each Python call nests C calls. 3.12 allows only 1500 of those, and would raise RecursionError near a depth
   of 750: give back what the hook costs, as far down as the C stack surely reaches. */
static PyObject *run_frame(PyThreadState *ts, Frame *f, int throwflag) {
    static _Thread_local int depth;      /* how many of these calls are running on this thread */
    int spared = depth++ < 5000 ? 2 : 0;
    ts->c_recursion_remaining += spared;
    PyObject *result = next_evaluator(ts, f, throwflag);
    ts->c_recursion_remaining -= spared;
    depth--;
    return result;
}
#else
#  define run_frame next_evaluator
#endif

/* ---- numbers: a code object's name in a watcher ------------------------------------------------------------------ */

/* Code objects compare and hash by value, so equal ones would share entries, and slowly. A number, kept in a scratch slot of the
   code object and never used twice, does neither; and unlike the entries it owns nothing that the collector must see. */
static Py_ssize_t slot;

/* The number of a code object, made when it is first asked for. Borrowed; NULL with an exception. */
static PyObject *number_of(PyCodeObject *code) {
    static long long last;
    void *number = NULL;
    PyUnstable_Code_GetExtra((PyObject *)code, slot, &number);
    if (number == NULL) {
        number = PyLong_FromLongLong(++last);
        if (number && PyUnstable_Code_SetExtra((PyObject *)code, slot, number) < 0)
            Py_CLEAR(number);
    }
    return number;
}

/* ---- hidden frames ----------------------------------------------------------------------------------------------- */

/* Two sorts of code are marked, in another scratch slot: WRAPPER only hands a call on, and HEAD does the work of a frame.
   CPython shows no frame that has not begun, and knows that from the place of its next instruction. So a frame is hidden by
   setting that place before the code, and shown again by setting it back. While a frame waits for a call of C code, CPython
   itself does not read the place. (A static mark would do the same to `co_firsttraceable`; then profilers of 3.11 would see
   returns without calls.) */
enum { WRAPPER = 1, HEAD = 2 };
static Py_ssize_t mark_slot;

static Py_ssize_t mark_of(PyObject *code) {
    void *mark = NULL;
    PyUnstable_Code_GetExtra(code, mark_slot, &mark);
    return (Py_ssize_t)mark;
}

/* More than the wrappers and the head that stand in a row between two frames of the program. */
#define MOST_HIDDEN 4

/* The frames that one call of `hide` hid. It lies on the C stack of the function that hides them. */
typedef struct Hidden {
    struct Hidden *before;               /* what this thread hid before, and still hides */
    int count;
    Frame *frames[MOST_HIDDEN];
    _Py_CODEUNIT *places[MOST_HIDDEN];   /* where each frame really stands */
} Hidden;

static _Thread_local Hidden *hidden;     /* the last of this thread; NULL: nothing is hidden */

/* Let each frame look as if it had not begun. */
static void conceal(Hidden *these) {
    for (int i = 0; i < these->count; i++)
        these->frames[i]->instr_ptr = _PyCode_CODE((PyCodeObject *)OBJECT(these->frames[i]->f_executable)) - 1;
}

/* Put back where each frame stands. */
static void reveal(Hidden *these) {
    for (int i = 0; i < these->count; i++)
        these->frames[i]->instr_ptr = these->places[i];
}

/* Hide the newest frames: wrappers, and with `head` the head above them. (The frame that the head stands for is not linked.) */
static void hide(Hidden *these, int head) {
    Frame *f = NEWEST_FRAME(PyThreadState_Get());
    these->count = 0;
    for (; f != NULL && these->count < MOST_HIDDEN; f = f->previous) {
        if (f->owner == FRAME_OWNED_BY_GENERATOR)
            break;
        if (f->owner != FRAME_OWNED_BY_THREAD)
            continue;                    /* no Python code: where C calls Python (since 3.12) */

        /* The first frame that is the program's own ends the row. */
        Py_ssize_t mark = mark_of(OBJECT(f->f_executable));
        if (mark != WRAPPER && !(mark == HEAD && head))
            break;

        these->frames[these->count] = f;
        these->places[these->count++] = f->instr_ptr;
        if (mark == HEAD)
            break;
    }

    conceal(these);
    these->before = hidden;
    hidden = these;
}

/* Undo `hide`. */
static void show(Hidden *these) {
    reveal(these);
    hidden = these->before;
}

/* ---- the hook ---------------------------------------------------------------------------------------------------- */

static _Thread_local PyObject *watcher;  /* this thread's; NULL: none */
static int watched_threads;              /* how many threads have one; changed under the GIL */

/* An entry that holds so often in a row, while those before it fail, is tried first from then on: a program that has warmed up does
   not go back. So many, for where two entries hold in turn, their order shall stay. */
#define OFTEN 16
#define ROWS 256

/* Of the lists that were looked at last: which entry held, and how often in a row. A list that lies where another one lay before
   can only make an entry move early, and two lists that share a row only disturb each other's count: the order is for speed. */
typedef struct { PyObject *entries; Py_ssize_t place; int count; } Row;
static _Thread_local Row rows[ROWS];

/* Note that the entry at `place` held. 1 if it shall be the first one. */
static int note_place(PyObject *entries, Py_ssize_t place) {
    Row *row = &rows[((uintptr_t)entries >> 4) % ROWS];      /* objects lie 16 bytes apart: the low bits tell nothing */
    if (row->entries != entries || row->place != place)
        *row = (Row){entries, place, 0};
    return place > 0 && ++row->count >= OFTEN;
}

/* Let the entry at `place` be the first one, in a new list: the old one may be in use. -1 with an exception. */
static int put_first(PyObject *asked, PyObject *number, PyObject *entries, Py_ssize_t place) {
    if (PyDict_GetItemWithError(asked, number) != entries || place >= PyList_GET_SIZE(entries))
        return PyErr_Occurred() ? -1 : 0;
    PyObject *moved = PyList_GetSlice(entries, 0, PyList_GET_SIZE(entries));
    if (moved == NULL)
        return -1;
    PyObject *entry = Py_NewRef(PyList_GET_ITEM(moved, place));
    int failed = PyList_SetSlice(moved, place, place + 1, NULL) || PyList_Insert(moved, 0, entry)
                 || PyDict_SetItem(asked, number, moved);
    Py_DECREF(entry);
    Py_DECREF(moved);
    return failed ? -1 : 0;
}

/* The head for this call (a new reference); NULL without an exception: run the frame as it is.
   `asked`: the watcher. `number`, `entries`: the code's, and what the watcher has for it: NULL, or a list.
   `call`: code, func, and n arguments. */
static PyObject *find_head(PyObject *asked, PyObject *number, PyObject *entries, PyObject **call, int n) {
    if (entries && !PyList_Check(entries))
        return PyErr_Format(PyExc_TypeError, "a watcher holds lists of (guard, head) and None, got %R", entries);

    for (Py_ssize_t i = 0; entries && i < PyList_GET_SIZE(entries); i++) {
        PyObject *entry = PyList_GET_ITEM(entries, i);
        if (!PyTuple_Check(entry) || PyTuple_GET_SIZE(entry) != 2)
            return PyErr_Format(PyExc_TypeError, "a watcher's entries are pairs (guard, head), got %R", entry);

        /* `guard(func, *args)`: 1 it holds, 0 it does not, -1 it raised. It may also change the list that it stands in. */
        Py_INCREF(entry);
        PyObject *answer = PyObject_Vectorcall(PyTuple_GET_ITEM(entry, 0), call + 1, n + 1, NULL);
        int holds = answer ? PyObject_IsTrue(answer) : -1;
        PyObject *head = holds > 0 ? Py_NewRef(PyTuple_GET_ITEM(entry, 1)) : NULL;
        Py_XDECREF(answer);
        Py_DECREF(entry);
        if (holds > 0 && note_place(entries, i) && put_first(asked, number, entries, i) < 0)
            Py_CLEAR(head);
        if (holds)
            return head;
    }

    /* No entry fits: `watcher(code, func, *args)`. */
    PyObject *head = PyObject_Vectorcall(asked, call, n + 2, NULL);
    if (head == Py_None)
        Py_CLEAR(head);
    return head;
}

static PyObject *as_it_is;               /* what a head returns to let the frame run */
static PyObject *on_error;               /* a Python function that is told of the error of a head; NULL: none */

static PyObject *enter(PyObject *, PyObject *);

/* Run the frame, and all below it, with nobody watching. */
static PyObject *run_unwatched(PyThreadState *ts, Frame *f) {
    _PyFrameEvalFunction evaluate = next_evaluator;      /* `enter` may take us out */
    PyObject *before = enter(NULL, Py_None);
    if (before == NULL)
        return discard_frame(ts, f, NULL);

    PyObject *result = evaluate(ts, f, 0);
    Py_XDECREF(enter(NULL, before));
    Py_DECREF(before);
    return result;
}

/* Show the error of a head to `on_error`, which may change its traceback. */
static void tell_of_error(void) {
    PyObject *asked = watcher;
    watcher = NULL;                      /* `on_error` runs unobserved */

    /* Take the exception, with its traceback in it. */
#if PY_VERSION_HEX >= 0x030C0000
    PyObject *error = PyErr_GetRaisedException();
#else
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback)
        PyException_SetTraceback(error, traceback);
    Py_XDECREF(traceback);
#endif

    PyObject *done = PyObject_CallOneArg(on_error, error);
    if (done == NULL)
        PyErr_Clear();                   /* as deep in calls as the error itself: its traceback stays as it is */
    Py_XDECREF(done);

    /* Raise it again, with the traceback that it has now. */
#if PY_VERSION_HEX >= 0x030C0000
    PyErr_SetRaisedException(error);
#else
    PyErr_Restore(type, error, PyException_GetTraceback(error));
#endif
    Py_XSETREF(watcher, asked);
}

/* Call the head in the frame's place, or run the frame. Apart, so that frames left alone pay no C stack for `call`. */
static __attribute__((noinline)) PyObject *replace_frame(PyThreadState *ts, Frame *f, PyCodeObject *code, PyObject *number,
                                                         PyObject *entries) {
    int variadic = !!(code->co_flags & CO_VARARGS) + !!(code->co_flags & CO_VARKEYWORDS);
    int n = code->co_argcount + code->co_kwonlyargcount + variadic;
    PyObject *call[n + 2], *asked = watcher;             /* code, func, *args */

    /* Parameters are the first local variables of a frame. */
    call[0] = (PyObject *)code;
    call[1] = OBJECT(f->f_funcobj);
    for (int i = 0; i < n; i++)
        call[2 + i] = OBJECT(f->localsplus[i]);

    watcher = NULL;                                      /* guards, and the watcher itself, run unobserved */
    Py_XINCREF(entries);
    PyObject *head = find_head(asked, number, entries, call, n);
    Py_XDECREF(entries);
    Py_XSETREF(watcher, asked);

    if (head == NULL)
        return PyErr_Occurred() ? discard_frame(ts, f, NULL) : run_frame(ts, f, 0);

    /* The frame never runs: its head does. */
    _Py_CODEUNIT *start = f->instr_ptr;
    f->instr_ptr = _PyCode_CODE(code) - 1;               /* hidden: since 3.13 a frame at its start can be seen */
    PyObject *result = PyObject_Vectorcall(head, call + 1, n + 1, NULL);
    f->instr_ptr = start;

    int is_head = PyFunction_Check(head) && mark_of(PyFunction_GET_CODE(head)) == HEAD;
    Py_DECREF(head);
    if (result == NULL && is_head && on_error)
        tell_of_error();
    if (result == as_it_is) {
        Py_DECREF(result);
        return run_unwatched(ts, f);
    }
    return discard_frame(ts, f, result);
}

/* What CPython calls for each Python frame. `throwflag`: an exception is thrown into a generator. */
static PyObject *eval_frame(PyThreadState *ts, Frame *f, int throwflag) {
    /* A generator is shown once, when it is made. What the collector, an audit hook or a debugger runs is no call of the code's. */
    if (watcher == NULL || throwflag || f->owner == FRAME_OWNED_BY_GENERATOR || ts->interp->gc.collecting || ts->tracing)
        return run_frame(ts, f, throwflag);

    /* What does the watcher have for this code? None: run the frame. */
    PyCodeObject *code = (PyCodeObject *)OBJECT(f->f_executable);
    PyObject *number = number_of(code);
    PyObject *entries = number ? PyDict_GetItemWithError(watcher, number) : NULL;
    if (entries == Py_None)
        return run_frame(ts, f, 0);
    if (entries == NULL && PyErr_Occurred())
        return discard_frame(ts, f, NULL);

    /* The body of a module or a class, and what is entered again and again, is never replaced: the watcher gets a None. */
    int entered_often = code->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR);
    if (!(code->co_flags & CO_OPTIMIZED) || entered_often)
        return PyDict_SetItem(watcher, number, Py_None) ? discard_frame(ts, f, NULL) : run_frame(ts, f, 0);

    return replace_frame(ts, f, code, number, entries);
}

/* ---- the module -------------------------------------------------------------------------------------------------- */

/* Make `next` (None: nobody) this thread's watcher; returns the one before. The evaluator is replaced only while somebody
   watches, so that the rest of a program pays nothing. */
static PyObject *enter(PyObject *self, PyObject *next) {
    if (next != Py_None && !(PyDict_Check(next) && PyCallable_Check(next)))
        return PyErr_Format(PyExc_TypeError, "expected a Watcher or None, got %.100s", Py_TYPE(next)->tp_name);

    PyInterpreterState *interp = PyInterpreterState_Get();
    PyObject *before = watcher;
    watcher = next == Py_None ? NULL : Py_NewRef(next);
    watched_threads += (watcher != NULL) - (before != NULL);

    /* Put our evaluator in, if it is not there. If another one (torch.compile's) took the place of ours meanwhile, it calls ours:
       then ours is not put in a second time. */
    _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(interp);
    if (watched_threads > 0 && now != eval_frame && (!next_evaluator || now == _PyEval_EvalFrameDefault)) {
        next_evaluator = now;
        _PyInterpreterState_SetEvalFrameFunc(interp, eval_frame);
    }
    else if (watched_threads == 0 && now == eval_frame) {
        _PyInterpreterState_SetEvalFrameFunc(interp, next_evaluator);
        next_evaluator = NULL;
    }
    return before ? before : Py_NewRef(Py_None);
}

static PyObject *call(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    if (n < 2)
        return PyErr_Format(PyExc_TypeError, "call takes a watcher, a function and its arguments; got %zd", n);
    PyObject *before = enter(self, args[0]);
    if (before == NULL)
        return NULL;

    Hidden wrappers;
    hide(&wrappers, 0);
    PyObject *result = PyObject_Vectorcall(args[1], args + 2, n - 2, kwnames);
    show(&wrappers);

    Py_DECREF(enter(self, before));
    Py_DECREF(before);
    return result;
}

static PyObject *call_hidden(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    if (n < 1)
        return PyErr_Format(PyExc_TypeError, "call_hidden takes a function and its arguments");
    Hidden callers;
    hide(&callers, 1);
    PyObject *result = PyObject_Vectorcall(args[0], args + 1, n - 1, kwnames);
    show(&callers);
    return result;
}

static PyObject *call_revealed(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    if (n < 1)
        return PyErr_Format(PyExc_TypeError, "call_revealed takes a function and its arguments");

    Hidden *newest = hidden;
    for (Hidden *these = newest; these; these = these->before)
        reveal(these);
    hidden = NULL;

    PyObject *result = PyObject_Vectorcall(args[0], args + 1, n - 1, kwnames);

    hidden = newest;
    for (Hidden *these = newest; these; these = these->before)
        conceal(these);
    return result;
}

static PyObject *mark(PyObject *self, PyObject *args) {
    PyObject *code;
    Py_ssize_t sort;
    if (!PyArg_ParseTuple(args, "O!n", &PyCode_Type, &code, &sort))
        return NULL;
    if (PyUnstable_Code_SetExtra(code, mark_slot, (void *)sort) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *marked(PyObject *self, PyObject *code) {
    if (!PyCode_Check(code))
        return PyErr_Format(PyExc_TypeError, "expected a code object, got %.100s", Py_TYPE(code)->tp_name);
    return PyLong_FromSsize_t(mark_of(code));
}

static PyObject *tell(PyObject *self, PyObject *function) {
    Py_XSETREF(on_error, Py_NewRef(function));
    Py_RETURN_NONE;
}

static PyObject *number(PyObject *self, PyObject *code) {
    if (!PyCode_Check(code))
        return PyErr_Format(PyExc_TypeError, "expected a code object, got %.100s", Py_TYPE(code)->tp_name);
    return Py_XNewRef(number_of((PyCodeObject *)code));
}

/* CPython gives a class a new version tag after any change to it or to a class above it. It has none (0) after too many. */
static PyObject *class_version(PyObject *self, PyObject *cls) {
    if (!PyType_Check(cls))
        return PyErr_Format(PyExc_TypeError, "expected a class, got %R", cls);
    if (((PyTypeObject *)cls)->tp_version_tag == 0)
        Py_XDECREF(PyObject_GetAttrString(cls, "__init__"));     /* looking something up gives it one */
    return PyLong_FromUnsignedLong(((PyTypeObject *)cls)->tp_version_tag);
}

static PyMethodDef methods[] = {
    {"enter", enter, METH_O, "enter(watcher | None) -> the watcher of this thread until now"},
    {"call", (PyCFunction)(void (*)(void))call, METH_FASTCALL | METH_KEYWORDS,
     "call(watcher | None, function, *args, **kwargs): call the function, with the frames below it watched"},
    {"call_hidden", (PyCFunction)(void (*)(void))call_hidden, METH_FASTCALL | METH_KEYWORDS,
     "call_hidden(function, *args, **kwargs): call the function, with the wrappers and the head above it hidden"},
    {"call_revealed", (PyCFunction)(void (*)(void))call_revealed, METH_FASTCALL | METH_KEYWORDS,
     "call_revealed(function, *args, **kwargs): call the function, with no frame of this thread hidden"},
    {"mark", mark, METH_VARARGS, "mark(code, WRAPPER or HEAD): frames of this code may be hidden"},
    {"marked", marked, METH_O, "marked(code) -> WRAPPER, HEAD or 0"},
    {"tell", tell, METH_O, "tell(function): function(error) is told of the error of each head"},
    {"number", number, METH_O, "number(code) -> int: the code object's key in a watcher"},
    {"class_version", class_version, METH_O, "class_version(cls) -> int: another after any change to the class; 0: not known"},
    {NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_framehook", "See _framehook.c.", -1, methods};

PyMODINIT_FUNC PyInit__framehook(void) {
    /* An empty code object with another body. */
    const char body[] = {(char)RETURN_VALUE, 0};
    PyObject *empty = (PyObject *)PyCode_NewEmpty("<course_lib frame hook>", "discarded_frame", 1);
    PyObject *replace = empty ? PyObject_GetAttrString(empty, "replace") : NULL;
    PyObject *none = PyTuple_New(0), *changes = Py_BuildValue("{s:y#}", "co_code", body, (Py_ssize_t)sizeof body);
    if (replace && none && changes)
        return_stub = PyObject_Call(replace, none, changes);     /* kept for ever */
    Py_XDECREF(empty);
    Py_XDECREF(replace);
    Py_XDECREF(none);
    Py_XDECREF(changes);

    /* Two scratch slots in every code object: its number, and its mark. */
    slot = PyUnstable_Eval_RequestCodeExtraIndex((freefunc)Py_DecRef);
    mark_slot = PyUnstable_Eval_RequestCodeExtraIndex(NULL);
    as_it_is = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
    if (return_stub == NULL || slot < 0 || mark_slot < 0 || as_it_is == NULL)
        return NULL;

    PyObject *made = PyModule_Create(&module);
    if (made == NULL || PyModule_AddIntMacro(made, WRAPPER) < 0 || PyModule_AddIntMacro(made, HEAD) < 0
            || PyModule_AddObjectRef(made, "AS_IT_IS", as_it_is) < 0)
        Py_CLEAR(made);
    return made;
}
