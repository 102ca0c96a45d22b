// Package symbol names code: an offset in a module becomes functions, with those inlined there and their lines, and a name or
// pattern becomes the functions of a file. It knows ELF symbols, DWARF, Go's line table, PLT stubs, the vdso, the kernel's
// symbols and those that JIT compilers leave, and it tracks which file was mapped where in a process at a time.
//
// It does not unwind, attach or read the memory of a process. What it answers about a module depends on the module alone, so
// that a recording can be named elsewhere. All files are hostile: an answer may be missing, with a reason, and costs bounded
// time and memory.
package symbol
