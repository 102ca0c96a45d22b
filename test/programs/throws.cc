// Functions that throw exceptions through others that are watched, and overloads, methods and templates; prints what it did.
#include <cstdio>
#include <stdexcept>
#include <string>

#define KEEP __attribute__((noinline))
volatile int sink;
KEEP int thrower(int n) { sink = sink + n; if (n > 1) throw std::runtime_error("n is " + std::to_string(n)); return n + 10; }
KEEP int middle(int n) { int r = thrower(n); sink = sink + r; return r * 2; }
KEEP int catcher(int n) { try { return middle(n); } catch (const std::exception &e) { sink = sink + 1; return -n; } }

extern "C" KEEP int fun() { sink = sink + 1; return 1; }
KEEP int fun(int n) { sink = sink + n; return n; }
KEEP int function() { sink = sink + 1; return 3; }
struct Foo { int v; KEEP int fun() { sink = sink + v; return v; } };
template <typename T> KEEP T tmax(T a, T b) { sink = sink + 1; return a > b ? a : b; }

int main()
{
	int a = catcher(1), b = catcher(2), c = catcher(3);
	Foo f{7};
	int s = fun() + fun(5) + function() + f.fun() + tmax<int>(8, 9) + (int)tmax<double>(1.5, 2.5);
	printf("%d %d %d %d\n", a, b, c, s);
	return 0;
}
