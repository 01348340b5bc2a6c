/* A launch in one step from Python, as launcher.py describes it: launch(packed, stream, *addresses) -> status.

   No header of CUDA's is needed: the driver's entry is the first word of the packed arguments. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { ENTRY = 0, FUNCTION = 1, CONFIG = 2, CONFIG_WORDS = 7, STREAM_WORD = 4 };
enum { CONSTANTS = CONFIG + CONFIG_WORDS, MOST_CONSTANTS = 9, MOST_ADDRESSES = 4 };

typedef int (*launch_kernel)(void *config, void *function, void **parameters, void **extra);

static PyObject *launch(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    int64_t numbers[2 + MOST_ADDRESSES], config[CONFIG_WORDS];
    void *parameters[MOST_ADDRESSES + MOST_CONSTANTS];
    (void)module;
    if (count < 2 || count > 2 + MOST_ADDRESSES)
        return PyErr_Format(PyExc_TypeError, "launch takes packed arguments, a stream and at most %d addresses", MOST_ADDRESSES);
    for (Py_ssize_t k = 0; k < count; k++) {
        numbers[k] = PyLong_AsLongLong(given[k]);
        if (numbers[k] == -1 && PyErr_Occurred())
            return NULL;
    }
    int64_t *packed = (int64_t *)(intptr_t)numbers[0];
    memcpy(config, packed + CONFIG, sizeof config);
    config[STREAM_WORD] = numbers[1];
    for (Py_ssize_t k = 2; k < count; k++)
        parameters[k - 2] = &numbers[k];
    for (Py_ssize_t k = 0; k < MOST_CONSTANTS; k++) /* a kernel that takes fewer does not read the rest */
        parameters[count - 2 + k] = &packed[CONSTANTS + k];
    launch_kernel enter = (launch_kernel)(intptr_t)packed[ENTRY];
    int status;
    Py_BEGIN_ALLOW_THREADS /* a full queue waits for the GPU, and a host function in it may need the interpreter */
    status = enter(config, (void *)(intptr_t)packed[FUNCTION], parameters, NULL);
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(status);
}

static PyMethodDef methods[] = {
    {"launch", (PyCFunction)(void (*)(void))launch, METH_FASTCALL, "launch(packed, stream, *addresses) -> status"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_launcher", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__launcher(void) { return PyModule_Create(&definition); }
