// random SEED COUNT FILE: random operations on an arena of 64 pages and on the heap; each is printed with what the kernel has made of it.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096UL
#define PAGES 64
static char maps[1 << 20], out[1 << 16];
static uint64_t state;
static unsigned rnd(unsigned n) {
	state = state * 6364136223846793005UL + 1442695040888963407UL;
	return (state >> 33) % n;
}
static void say(const char *fmt, ...) {
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(out, sizeof out, fmt, ap);
	va_end(ap);
	if (write(1, out, n) != n) _exit(3);
}
static unsigned long arena, heap;

static int perms(unsigned long addr) { // r=1 w=2 of the page, -1 when there is none; from the maps that were read last
	for (char *p = maps; *p;) {
		unsigned long s, e;
		char f[5];
		if (sscanf(p, "%lx-%lx %4s", &s, &e, f) == 3 && s <= addr && addr < e) return (f[0] == 'r') | (f[1] == 'w') << 1 | (f[3] == 's') << 2;
		p = strchr(p, '\n');
		if (!p) break;
		p++;
	}
	return -1;
}
static void read_maps(void) {
	int fd = open("/proc/self/maps", O_RDONLY);
	int n = 0, k;
	while ((k = read(fd, maps + n, sizeof maps - 1 - n)) > 0) n += k;
	maps[n] = 0;
	close(fd);
}
static void show(void) {
	read_maps();
	for (char *p = maps; *p;) {
		char *nl = strchr(p, '\n');
		if (!nl) break;
		unsigned long s, e;
		if (sscanf(p, "%lx-%lx", &s, &e) == 2 && ((s < arena + PAGES * PAGE && e > arena) || (s < heap + 256 * PAGE && e > heap))) say("= %.*s\n", (int)(nl - p), p);
		p = nl + 1;
	}
	say(".\n");
}

int main(int argc, char **argv) {
	state = strtoul(argv[1], 0, 10) * 2654435761UL + 1;
	int count = atoi(argv[2]);
	int fd = open(argv[3], O_RDONLY), fd2 = open(argv[3], O_RDONLY);
	arena = 0x200000000000UL + (unsigned long)rnd(1000) * 0x10000000UL;
	heap = syscall(SYS_brk, 0);
	say("brk %lx\n", heap);
	show();
	for (int i = 0; i < count; i++) {
		unsigned a = rnd(PAGES), n = 1 + rnd(rnd(3) ? 4 : PAGES - a);
		if (a + n > PAGES) n = PAGES - a;
		unsigned long addr = arena + a * PAGE, len = n * PAGE;
		static const int prots[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC};
		int prot = prots[rnd(5)];
		switch (rnd(9)) {
		case 0: case 1: { // anonymous
			int nores = rnd(8) == 0;
			void *r = mmap((void *)addr, len, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | (nores ? MAP_NORESERVE : 0), -1, 0);
			say("anon %lx %lx %d %d %d\n", addr, len, prot, nores, r == MAP_FAILED);
			break; }
		case 2: { // of a file; offsets often go on from a neighbour
			int which = rnd(4) == 0;
			unsigned long off = rnd(2) ? (unsigned long)a * PAGE : rnd(8) * PAGE;
			int shared = rnd(4) == 0;
			if (shared) prot &= ~PROT_WRITE;
			void *r = mmap((void *)addr, len, prot, (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED, which ? fd2 : fd, off);
			say("file %lx %lx %d %d %d %lx %d\n", addr, len, prot, which, shared, off, r == MAP_FAILED);
			break; }
		case 3:
			munmap((void *)addr, len);
			say("unmap %lx %lx\n", addr, len);
			break;
		case 4: case 5:
			say("protect %lx %lx %d %d\n", addr, len, prot, mprotect((void *)addr, len, prot) != 0);
			break;
		case 6: { // touch
			int p = perms(addr);
			if (p == 3) {
				*(volatile char *)addr = 1;
				say("touch %lx\n", addr);
			} else say("none\n");
			break; }
		case 7: {
			unsigned b = rnd(PAGES), m = 1 + rnd(4);
			if (b + m > PAGES) m = PAGES - b;
			unsigned long to = arena + b * PAGE, nlen = m * PAGE;
			if (to < addr + len && addr < to + nlen) { say("none\n"); break; }
			void *r;
			if (rnd(3) == 0) { // in place only
				to = addr;
				r = mremap((void *)addr, len, nlen, 0);
				if (r != MAP_FAILED && addr + nlen > arena + PAGES * PAGE) { munmap((void *)(arena + PAGES * PAGE), PAGES * PAGE); say("remap %lx %lx %lx %lx 0\nunmap %lx %lx\n", addr, len, to, nlen, arena + PAGES * PAGE, PAGES * PAGE); break; }
			} else
				r = mremap((void *)addr, len, nlen, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)to);
			// A refused one may have unmapped its target all the same: kernels differ; that place is cleared.
			if (r == MAP_FAILED && to != addr) { munmap((void *)to, nlen); say("unmap %lx %lx\n", to, nlen); }
			else say("remap %lx %lx %lx %lx %d\n", addr, len, to, nlen, r == MAP_FAILED);
			break; }
		case 8: {
			unsigned long now = syscall(SYS_brk, 0), want = heap + rnd(40) * PAGE + rnd(2) * 100;
			now = syscall(SYS_brk, want);
			say("brk %lx\n", now);
			break; }
		}
		show();
	}
	return 0;
}
