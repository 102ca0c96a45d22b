package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// kernel returns the path of a suite's newest cloud kernel, from the cache or else from the mirror.
func (c *config) kernel(ctx context.Context, suite, arch string) (string, error) {
	dir := filepath.Join(c.cache, "kernels", suite+"-"+arch)
	if path, err := one(filepath.Join(dir, "boot", "vmlinuz-*")); err == nil {
		return path, nil
	}
	a, err := newApt(suite, arch)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(a.dir)
	fmt.Printf("%s-%s: downloading a kernel\n", suite, arch)
	list, err := a.run(ctx, "apt-cache", "search", "--names-only", "^linux-image-[0-9].*cloud-"+arch+"$")
	if err != nil {
		return "", err
	}
	var names []string
	for _, line := range strings.Split(list, "\n") {
		if f := strings.Fields(line); len(f) > 0 && !strings.Contains(f[0], "-rt-") {
			names = append(names, f[0])
		}
	}
	if len(names) == 0 {
		return "", fmt.Errorf("%s has no cloud kernel for %s", suite, arch)
	}
	sort.Slice(names, func(i, j int) bool { return versionLess(names[i], names[j]) })
	if err := a.unpack(ctx, names[len(names)-1], dir, "boot"); err != nil {
		return "", err
	}
	return one(filepath.Join(dir, "boot", "vmlinuz-*"))
}

// busybox returns the path of a static busybox, the shell and the tools of the machines.
func (c *config) busybox(ctx context.Context, arch string) (string, error) {
	dir := filepath.Join(c.cache, "busybox-"+arch)
	pattern := filepath.Join(dir, "*", "bin", "busybox")
	if path, err := one(pattern); err == nil {
		return path, nil
	}
	if path, err := one(filepath.Join(dir, "bin", "busybox")); err == nil {
		return path, nil
	}
	a, err := newApt("bookworm", arch)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(a.dir)
	if err := a.unpack(ctx, "busybox-static", dir, ""); err != nil {
		return "", err
	}
	if path, err := one(pattern); err == nil {
		return path, nil
	}
	return one(filepath.Join(dir, "bin", "busybox"))
}

func one(pattern string) (string, error) {
	m, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	if len(m) == 0 {
		return "", fmt.Errorf("%s: not there", pattern)
	}
	return m[len(m)-1], nil
}

// apt works on state of its own: the machine's package lists stay as they are, and no rights are needed.
type apt struct {
	dir  string
	opts []string
}

func newApt(suite, arch string) (*apt, error) {
	dir, err := os.MkdirTemp("", "sonde-apt-")
	if err != nil {
		return nil, err
	}
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	src := fmt.Sprintf("deb [arch=%s signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n", arch, mirror(), suite)
	if err := os.WriteFile(filepath.Join(dir, "sources.list"), []byte(src), 0o644); err != nil {
		return nil, err
	}
	a := &apt{dir: dir, opts: []string{"-o", "APT::Architecture=" + arch, "-o", "APT::Architectures=" + arch,
		"-o", "APT::Sandbox::User=root", "-o", "Dir::State::Lists=" + dir + "/lists", "-o", "Dir::Etc::sourcelist=" + dir + "/sources.list",
		"-o", "Dir::Etc::sourceparts=/dev/null", "-o", "Dir::Cache=" + dir + "/cache", "-o", "Acquire::Retries=3", "-o", "Acquire::Languages=none"}}
	if _, err := a.run(context.Background(), "apt-get", "-qq", "update"); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("package lists of %s: %w", suite, err)
	}
	return a, nil
}

func (a *apt) run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, append(append([]string(nil), a.opts...), args...)...)
	cmd.Dir = a.dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, errs.String())
	}
	return out.String(), nil
}

// unpack downloads a package and puts it (or only the part of that name) in place of dir, all or nothing.
func (a *apt) unpack(ctx context.Context, name, dir, part string) error {
	if _, err := a.run(ctx, "apt-get", "-qq", "download", name); err != nil {
		return err
	}
	deb, err := one(filepath.Join(a.dir, name+"_*.deb"))
	if err != nil {
		return err
	}
	tree := filepath.Join(a.dir, "tree")
	if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", deb, tree).CombinedOutput(); err != nil {
		return fmt.Errorf("dpkg-deb -x %s: %w\n%s", name, err, out)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	next, err := os.MkdirTemp(filepath.Dir(dir), ".new-") // another run may be doing the same
	if err != nil {
		return err
	}
	defer os.RemoveAll(next)
	if out, err := exec.CommandContext(ctx, "cp", "-a", filepath.Join(tree, part), next).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w\n%s", err, out)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(next, dir)
}

// mirror is the one that this machine uses.
func mirror() string {
	const fallback = "http://deb.debian.org/debian"
	if m := os.Getenv("SONDE_MIRROR"); m != "" {
		return m
	}
	for _, f := range []string{"/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"} {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		if m := regexp.MustCompile(`(?m)^(?:URIs:|deb)\s+(?:\[[^\]]*\]\s+)?(\S+/debian/?)(?:\s|$)`).FindSubmatch(text); m != nil {
			return string(m[1])
		}
	}
	return fallback
}

var digits = regexp.MustCompile(`\d+|\D+`)

// versionLess compares names piece by piece, numbers by value.
func versionLess(a, b string) bool {
	x, y := digits.FindAllString(a, -1), digits.FindAllString(b, -1)
	for i := 0; i < len(x) && i < len(y); i++ {
		if x[i] == y[i] {
			continue
		}
		m, err1 := strconv.Atoi(x[i])
		n, err2 := strconv.Atoi(y[i])
		if err1 == nil && err2 == nil {
			return m < n
		}
		return x[i] < y[i]
	}
	return len(x) < len(y)
}
