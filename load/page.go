package load

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"path/filepath"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string
)

// Page writes an analysis as one HTML file that needs nothing else. Every name in it is escaped, and its policy lets only its own
// style and script run.
func Page(w io.Writer, a *Analysis) error {
	hash := func(s string) string {
		h := sha256.Sum256([]byte(s))
		return "'sha256-" + base64.StdEncoding.EncodeToString(h[:]) + "'"
	}
	total := int64(1)
	for _, p := range a.Phases {
		total = max(total, p.End)
	}
	t, err := template.New("page").Funcs(template.FuncMap{
		"ms":      func(ns int64) string { return fmt.Sprintf("%.3f", float64(ns)/1e6) },
		"took":    func(from, to int64) string { return fmt.Sprintf("%.3f", float64(to-from)/1e6) },
		"base":    filepath.Base,
		"hex":     func(v uint64) string { return fmt.Sprintf("%#x", v) },
		"kib":     func(v uint64) uint64 { return v >> 10 },
		"x":       func(ns int64) string { return fmt.Sprintf("%.2f", float64(ns)*1000/float64(total)) },
		"wide":    func(from, to int64) string { return fmt.Sprintf("%.2f", max(float64(to-from)*1000/float64(total), 1)) },
		"y":       func(i int) int { return 8 + i*26 },
		"tall":    func(n int) int { return 16 + n*26 },
		"percent": func(from, to int64) int64 { return (to - from) * 100 / total },
		"css":     func() template.CSS { return template.CSS(pageCSS) }, // both are constants of this package
		"js":      func() template.JS { return template.JS(pageJS) },
		"csp": func() string {
			return "default-src 'none'; style-src " + hash(pageCSS) + "; script-src " + hash(pageJS) + "; base-uri 'none'; form-action 'none'"
		},
	}).Parse(pageHTML)
	if err != nil {
		return fmt.Errorf("the template of the page: %w", err)
	}
	return t.Execute(w, a)
}
