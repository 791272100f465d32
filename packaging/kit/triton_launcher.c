/* Launches a Triton kernel of any signature, where Triton would have a launcher compiled for each.

   Which signature it is stands in `slot`, written there in a copy of the compiled file (engine/packs/helper.py): a
   letter for each argument of the kernel, constants among them. The method takes what Triton 3.6.0's own launcher takes:
   grid (3), stream, function, cooperative, dependent, two scratch areas, (warps, blocks of a cluster, shared bytes),
   metadata, a hook before and one after, then the arguments. Clusters and other attributes of launches are refused. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#define MARK "KVASIR-TRITON-SIGNATURE:"
#define MOST 256
enum { BASE = 13, OK = 0, INVALID_VALUE = 1, DEVICE_POINTER = 3 };

static const volatile char slot[sizeof MARK + MOST] = MARK;
static char letters[MOST + 1];

static int (*launch_kernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                            void **, void **);
static int (*pointer_attribute)(void *, int, uint64_t);
static int (*error_string)(int, const char **);
static int (*current_context)(void **);
static int (*device_get)(int *, int);
static int (*retain_context)(void **, int);
static int (*set_context)(void *);

static int check(int code) {
    const char *words = NULL;
    if (code == OK)
        return 0;
    error_string(code, &words);
    PyErr_Format(PyExc_RuntimeError, "Triton Error [CUDA]: %s", words ? words : "unknown");
    return -1;
}

static int ensure_context(void) {
    void *context = NULL;
    int device;
    if (check(current_context(&context)))
        return -1;
    if (context)
        return 0;
    return check(device_get(&device, 0)) || check(retain_context(&context, device)) || check(set_context(context));
}

/* An address, None for none, or something with data_ptr(), whose address the GPU must be able to reach. */
static int take_pointer(PyObject *value, Py_ssize_t place, uint64_t *out) {
    PyObject *address;
    int status;
    *out = 0;
    if (value == Py_None)
        return 0;
    if (PyLong_Check(value)) {
        *out = PyLong_AsUnsignedLongLong(value);
        return PyErr_Occurred() ? -1 : 0;
    }
    address = PyObject_CallMethod(value, "data_ptr", NULL);
    if (!address) {
        PyErr_Format(PyExc_TypeError, "argument %zd is neither an address nor a tensor", place);
        return -1;
    }
    *out = PyLong_AsUnsignedLongLong(address);
    Py_DECREF(address);
    if (PyErr_Occurred())
        return -1;
    if (!*out)
        return 0;
    status = pointer_attribute(out, DEVICE_POINTER, *out);
    if (status == INVALID_VALUE) {
        PyErr_Format(PyExc_ValueError, "argument %zd lies where the GPU cannot reach it (a tensor of the CPU?)", place);
        return -1;
    }
    return check(status);
}

static int take_signed(PyObject *value, int bits, uint64_t *out) {
    long long number = PyLong_AsLongLong(value);
    if (number == -1 && PyErr_Occurred())
        return -1;
    if (bits < 64 && (number < -(1LL << (bits - 1)) || number >= 1LL << (bits - 1))) {
        PyErr_Format(PyExc_OverflowError, "%lld is not a number of %d bits", number, bits);
        return -1;
    }
    memcpy(out, &number, sizeof number); /* little-endian: the low bytes come first */
    return 0;
}

static int take_float(PyObject *value, char letter, uint64_t *out) {
    double number = PyFloat_AsDouble(value);
    float single = (float)number;
    uint32_t bits;
    if (number == -1.0 && PyErr_Occurred())
        return -1;
    memcpy(&bits, &single, sizeof bits);
    *out = 0;
    switch (letter) {
    case 'e':
        return PyFloat_Pack2(number, (char *)out, 1);
    case 'g':
        *out = bits >> 16;
        return 0;
    case 'f':
        *out = bits;
        return 0;
    default:
        memcpy(out, &number, sizeof number);
        return 0;
    }
}

static int take(PyObject *value, char letter, Py_ssize_t place, uint64_t *out) {
    switch (letter) {
    case 'p':
        return take_pointer(value, place, out);
    case 'b':
        return take_signed(value, 8, out);
    case 'h':
        return take_signed(value, 16, out);
    case 'i':
        return take_signed(value, 32, out);
    case 'l':
        return take_signed(value, 64, out);
    case 'u': /* of any width: the kernel reads as many bytes as it has */
        *out = PyLong_AsUnsignedLongLongMask(value);
        return PyErr_Occurred() ? -1 : 0;
    default:
        return take_float(value, letter, out);
    }
}

static int call_hook(PyObject *hook, PyObject *metadata) {
    PyObject *result;
    if (hook == Py_None)
        return 0;
    result = PyObject_CallFunctionObjArgs(hook, metadata, NULL);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

static PyObject *launch(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    uint64_t values[MOST + 2];
    void *params[MOST + 2];
    uint64_t grid[3];
    void *stream, *function;
    int warps, cluster, shared, status, used = 0;
    Py_ssize_t i;
    if (count != BASE + (Py_ssize_t)strlen(letters))
        return PyErr_Format(PyExc_TypeError, "%zd arguments, and not %zd", count, BASE + (Py_ssize_t)strlen(letters));
    for (i = 0; i < 3; i++)
        if (take_signed(args[i], 32, &grid[i]))
            return NULL;
    stream = (void *)(uintptr_t)PyLong_AsUnsignedLongLongMask(args[3]);
    function = (void *)(uintptr_t)PyLong_AsUnsignedLongLongMask(args[4]);
    if (PyErr_Occurred() || !PyArg_ParseTuple(args[9], "iii", &warps, &cluster, &shared))
        return NULL;
    if (PyObject_IsTrue(args[5]) || PyObject_IsTrue(args[6]) || cluster != 1)
        return PyErr_Format(PyExc_RuntimeError, "the prebuilt launcher starts plain kernels only");
    if (ensure_context() || call_hook(args[11], args[10]))
        return NULL;
    for (i = 0; letters[i]; i++) {
        if (letters[i] == 'c')
            continue; /* compiled into the kernel */
        if (take(args[BASE + i], letters[i], i, &values[used]))
            return NULL;
        used++;
    }
    for (i = 7; i < 9; i++, used++)
        if (take_pointer(args[i], -1, &values[used]))
            return NULL;
    for (i = 0; i < used; i++)
        params[i] = &values[i];
    if ((int32_t)grid[0] > 0 && (int32_t)grid[1] > 0 && (int32_t)grid[2] > 0) {
        Py_BEGIN_ALLOW_THREADS
        status = launch_kernel(function, (unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2], 32 * warps, 1, 1,
                               shared, stream, params, NULL);
        Py_END_ALLOW_THREADS
        if (check(status))
            return NULL;
    }
    if (call_hook(args[12], args[10]))
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"launch", (PyCFunction)(void (*)(void))launch, METH_FASTCALL, "Launch a kernel of the signature in this file."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "__triton_launcher", NULL, -1, methods};

static int find(void *driver, const char *name, void *place) {
    void *found = dlsym(driver, name);
    if (!found) {
        PyErr_Format(PyExc_ImportError, "the GPU's driver has no %s", name);
        return -1;
    }
    memcpy(place, &found, sizeof found);
    return 0;
}

PyMODINIT_FUNC PyInit___triton_launcher(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    size_t i;
    if (!driver)
        return PyErr_Format(PyExc_ImportError, "libcuda.so.1 cannot be opened: %s", dlerror());
    if (find(driver, "cuLaunchKernel", &launch_kernel) || find(driver, "cuPointerGetAttribute", &pointer_attribute) ||
        find(driver, "cuGetErrorString", &error_string) || find(driver, "cuCtxGetCurrent", &current_context) ||
        find(driver, "cuDeviceGet", &device_get) || find(driver, "cuDevicePrimaryCtxRetain", &retain_context) ||
        find(driver, "cuCtxSetCurrent", &set_context))
        return NULL;
    for (i = 0; i < MOST; i++)
        letters[i] = slot[sizeof MARK - 1 + i];
    return PyModule_Create(&definition);
}
