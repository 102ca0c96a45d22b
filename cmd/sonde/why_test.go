package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhyStatus: the sentence on stderr and the status of a shell.
func TestWhyStatus(t *testing.T) {
	dir := t.TempDir()
	script := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tc := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"why", "--", script("crlf", "#!/bin/sh\r\n", 0o755)}, 127, `"/bin/sh\r"`},
		{[]string{"why", "--", script("absent", "#!/no/such\n", 0o755)}, 127, "/no/such"},
		{[]string{"why", "--", script("mode", "#!/bin/sh\n", 0o644)}, 126, "chmod +x"},
		{[]string{"why", "--", script("seven", "#!/bin/sh\nexit 7\n", 0o755)}, 7, ""},
		{[]string{"why", "--", script("dies", "#!/bin/sh\nkill -KILL $$\n", 0o755)}, 137, "SIGKILL"},
		{[]string{"why", "-n", "--", script("fine", "#!/bin/sh\nexit 7\n", 0o755)}, 0, "nothing is found"},
		{[]string{"why", "--", "no-such-command-anywhere"}, 127, "PATH"},
		{[]string{"load", "--", "no-such-command-anywhere"}, 127, "PATH"},
	} {
		var errs bytes.Buffer
		root := rootCommand()
		root.SetErr(&errs)
		root.SetArgs(tc.args)
		cmd, err := root.ExecuteC()
		if got := report(cmd, err); got != tc.status || !strings.Contains(errs.String(), tc.says) {
			t.Errorf("%q: status %d, want %d; %s", tc.args, got, tc.status, errs.String())
		}
	}
}
