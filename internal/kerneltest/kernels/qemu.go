package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// bootLimit is the time until process 1 speaks; 3 to 10 seconds are common, more where the machine is shared.
const bootLimit = 3 * time.Minute

func qemu(arch, kernel, initrd string) []string {
	// One host thread for all processors of a machine. With a thread for each, a guest processor was seen to run an int3
	// of the kernel's own code patching after the patch was complete, which panics; and as two machines share two cores,
	// it would gain little.
	accel := "tcg,thread=single"
	if arch == runtime.GOARCH {
		if f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err == nil {
			f.Close()
			accel = "kvm"
		}
	}
	common := []string{"-accel", accel, "-cpu", "max", "-smp", "2", "-m", "1024", "-kernel", kernel, "-initrd", initrd,
		"-nographic", "-no-reboot", "-nic", "none"}
	if arch == "arm64" {
		return append([]string{"qemu-system-aarch64", "-M", "virt"}, append(common, "-append", "console=ttyAMA0 quiet loglevel=1 panic=-1")...)
	}
	return append([]string{"qemu-system-x86_64"}, append(common, "-append", "console=ttyS0 quiet loglevel=1 panic=-1")...)
}

// message is a line of kernels/init.
type message struct {
	Package, Boot, Output, Feature, Error string
	Exit                                  *int
	Done                                  bool
}

// boot runs the tests on a virtual machine. It always gives a report.
func (c *config) boot(ctx context.Context, m entry, kernel string, p *payload) *report {
	r := newReport(m.String(), p)
	defer func() { r.took = time.Since(r.began) }()
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	log, err := os.Create(filepath.Join(c.logs, m.String()+".log"))
	if err != nil {
		return r.fail(err.Error())
	}
	defer log.Close()
	args := qemu(m.arch, kernel, p.initrd)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return r.fail(err.Error())
	}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return r.fail(fmt.Sprintf("%v; install qemu-system-x86 and qemu-system-arm", err))
	}
	silent := time.AfterFunc(bootLimit, cancel)
	done := r.read(io.TeeReader(out, log), func() { silent.Stop() })
	if done {
		// It powers itself off; what does not within a few seconds is stopped.
		time.AfterFunc(10*time.Second, cancel)
	}
	err = cmd.Wait()
	switch {
	case done:
	case r.release == "":
		r.fail(fmt.Sprintf("the machine did not boot within %v: %v", bootLimit, err))
	case ctx.Err() != nil:
		r.fail(fmt.Sprintf("stopped after %v", c.timeout))
	default:
		r.fail(fmt.Sprintf("the machine ended before its tests: %v", err))
	}
	if len(r.problems) > 0 {
		r.problems = append(r.problems, "see "+log.Name())
	}
	r.save(filepath.Join(c.logs, m.String()+".jsonl"))
	return r
}

// read takes in the console until the machine says that it is done.
func (r *report) read(console io.Reader, booted func()) bool {
	in := bufio.NewReaderSize(console, 1<<20)
	for {
		text, err := in.ReadString('\n')
		text = strings.TrimRight(text, "\r\n")
		if _, body, ok := strings.Cut(text, "@sonde "); ok {
			var m message
			if jerr := json.Unmarshal([]byte(body), &m); jerr != nil {
				r.fail(fmt.Sprintf("a line of the console is damaged: %.200q", text))
			} else {
				booted()
				r.take(m)
				if m.Done {
					return true
				}
			}
		} else if strings.Contains(text, "Kernel panic") || strings.Contains(text, "BUG:") || strings.Contains(text, "WARNING: CPU:") {
			r.fail("the kernel says: " + text)
		}
		if err != nil {
			return false
		}
	}
}

// onHost runs the same tests on this machine.
func (c *config) onHost(ctx context.Context, p *payload) *report {
	r := newReport("host", p)
	defer func() { r.took = time.Since(r.began) }()
	if out, err := exec.CommandContext(ctx, "uname", "-r").Output(); err == nil {
		r.release = strings.TrimSpace(string(out))
	}
	features := filepath.Join(p.dir, "features")
	for _, s := range p.plan.Suites {
		cmd := exec.CommandContext(ctx, s.Binary, "-test.v", "-test.timeout=10m", "-test.run="+s.Run)
		cmd.Dir = s.Dir
		cmd.Env = append(os.Environ(), "SONDE_FEATURES="+features)
		pr, pw := io.Pipe()
		cmd.Stdout, cmd.Stderr = pw, pw
		cmd.WaitDelay = 5 * time.Second
		read := make(chan struct{})
		go func() {
			defer close(read)
			in := bufio.NewReader(pr)
			for {
				text, err := in.ReadString('\n')
				if text != "" {
					r.take(message{Package: s.Package, Output: text})
				}
				if err != nil {
					return
				}
			}
		}()
		err := cmd.Run()
		pw.Close()
		<-read
		code := 0
		if err != nil {
			code = -1
			if cmd.ProcessState != nil {
				code = cmd.ProcessState.ExitCode()
			}
		}
		r.take(message{Package: s.Package, Exit: &code})
	}
	if text, err := os.ReadFile(features); err == nil {
		for _, l := range strings.Split(strings.TrimSpace(string(text)), "\n") {
			r.take(message{Feature: l})
		}
	}
	r.save(filepath.Join(c.logs, "host.jsonl"))
	return r
}
