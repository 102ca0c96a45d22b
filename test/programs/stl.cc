// stl calls mark from destructors while exceptions are thrown, and from callbacks inside templates of the library.
#include <algorithm>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#define KEEP __attribute__((noinline))
volatile long sink;
extern "C" KEEP void mark(long x) { sink += x; asm volatile("" ::: "memory"); }

struct Guard {
	std::string s;
	Guard(const char *c) : s(c) {}
	KEEP ~Guard() { mark((long)s.size()); }
};

KEEP long thrower(int d)
{
	Guard g("a string that is too long for the object");
	if (d == 0) {
		mark(3);
		throw std::runtime_error("x");
	}
	return thrower(d - 1) + (long)g.s.size();
}

struct Base {
	virtual long f(int) = 0;
	virtual ~Base() {}
};
struct Derived : Base {
	long f(int n) override
	{
		std::map<int, std::string> m;
		for (int i = 0; i < n; i++)
			m[i] = "v";
		mark(n);
		return (long)m.size();
	}
};
KEEP long call(Base *b, int n) { return b->f(n) + 1; }

int main()
{
	std::vector<int> v{5, 2, 8, 1, 9, 3};
	std::sort(v.begin(), v.end(), [](int a, int b) { mark(a); return a < b; });
	std::function<long(int)> f = [&](int x) { mark(x); return x + (long)v.size(); };
	sink += f(3);
	Derived d;
	sink += call(&d, 4);
	try {
		sink += thrower(5);
	} catch (std::exception &e) {
		mark(77);
	}
	return 0;
}
