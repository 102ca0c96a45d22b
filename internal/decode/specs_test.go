package decode

import "testing"

// TestRows checks what Specs cannot: a name that stands in two rows would lose one of them without a word.
func TestRows(t *testing.T) {
	seen := map[string]bool{}
	for _, family := range families {
		for i := range family {
			row := &family[i]
			if row.Name == "" || row.Decode == nil {
				t.Errorf("row %d of a family: name %q, decoder missing: %t", i, row.Name, row.Decode == nil)
			}
			if seen[row.Name] {
				t.Errorf("%s has two rows", row.Name)
			}
			seen[row.Name] = true
		}
	}
}
