package kerneltest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recorder is a test that only writes down how it ended.
type recorder struct {
	testing.TB
	name    string
	skipped string
	failed  string
	cleanup []func()
}

type stop struct{}

func (r *recorder) Helper()                   {}
func (r *recorder) Name() string              { return r.name }
func (r *recorder) Failed() bool              { return r.failed != "" }
func (r *recorder) Skipped() bool             { return r.skipped != "" }
func (r *recorder) Cleanup(f func())          { r.cleanup = append(r.cleanup, f) }
func (r *recorder) Errorf(f string, a ...any) { r.failed = fmt.Sprintf(f, a...) }
func (r *recorder) Skipf(f string, a ...any)  { r.skipped = fmt.Sprintf(f, a...); panic(stop{}) }
func (r *recorder) Fatalf(f string, a ...any) { r.failed = fmt.Sprintf(f, a...); panic(stop{}) }

func (r *recorder) run(f func(testing.TB)) {
	func() {
		defer func() {
			if p := recover(); p != nil {
				if _, ok := p.(stop); !ok {
					panic(p)
				}
			}
		}()
		f(r)
	}()
	for i := len(r.cleanup) - 1; i >= 0; i-- {
		r.cleanup[i]()
	}
}

func TestRequire(t *testing.T) {
	log := filepath.Join(t.TempDir(), "features")
	t.Setenv("SONDE_FEATURES", log)
	t.Setenv("SONDE_REQUIRE", "")
	t.Setenv("SONDE_UNPRIVILEGED", "")
	const there, gone, broken Feature = "test-there", "test-gone", "test-broken"
	probes[there] = func() error { return nil }
	probes[gone] = func() error { return fmt.Errorf("%w: no such thing", errMissing) }
	probes[broken] = func() error { return errors.New("the probe broke") }
	for _, c := range []struct {
		feature         Feature
		require         string
		skipped, failed string
	}{
		{there, "", "", ""},
		{gone, "", "missing feature test-gone: not there: no such thing", ""},
		{gone, "root,test-gone", "", "required here"},
		{gone, "all", "", "required here"},
		{broken, "", "", "the probe broke"},
		{"test-unknown", "", "", "no probe"},
	} {
		t.Setenv("SONDE_REQUIRE", c.require)
		r := &recorder{name: "TestX"}
		r.run(func(t testing.TB) { Require(t, c.feature) })
		if r.skipped != c.skipped || !strings.Contains(r.failed, c.failed) || (c.failed == "") != (r.failed == "") {
			t.Errorf("%+v: skipped %q, failed %q", c, r.skipped, r.failed)
		}
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	if len(lines) != 6 {
		t.Errorf("%d lines: %s", len(lines), text)
	}
	var u Use
	if err := json.Unmarshal(lines[1], &u); err != nil || u.Test != "TestX" || u.Feature != "test-gone" || u.Missing == "" {
		t.Errorf("%s: %+v, %v", lines[1], u, err)
	}
}

func TestEveryFeatureHasAProbe(t *testing.T) {
	for f := range probes {
		if strings.HasPrefix(string(f), "test-") {
			continue
		}
		if err := Have(f); err != nil && !errors.Is(err, errMissing) {
			t.Errorf("%s: the probe failed: %v", f, err)
		} else {
			t.Logf("%s: %v", f, err)
		}
	}
}

func TestCheckLeaks(t *testing.T) {
	r := &recorder{}
	r.run(func(t testing.TB) { CheckLeaks(t) })
	if r.failed != "" {
		t.Errorf("nothing leaked, but: %s", r.failed)
	}
	before := takeStock()
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	quit := make(chan bool)
	started := make(chan bool)
	go func() { started <- true; <-quit }()
	<-started
	leaks := strings.Join(before.compare(takeStock()), "\n")
	if !strings.Contains(leaks, "/dev/null") || !strings.Contains(leaks, "TestCheckLeaks.func") {
		t.Errorf("a descriptor and a goroutine are not in: %s", leaks)
	}
	f.Close()
	close(quit)
}
