package ctype

import (
	"testing"
)

// TestGoPlaces: an argument that does not fit the registers left goes to the stack whole, and later ones may still take registers.
func TestGoPlaces(t *testing.T) {
	tab := &Table{Types: []Type{{Name: "void"}, {Kind: KindInt, Size: 8, Signed: true}, {Kind: KindInt, Size: 2}, {Kind: KindPointer, Size: 8, Elem: 2},
		{Kind: KindStruct, Size: 16, Fields: []Field{{Name: "str", Type: 3}, {Name: "len", Off: 8, Type: 1}}}, {Kind: KindArray, Size: 4, Elem: 2, Count: 2}}}
	f := &Func{Language: langGo}
	for _, r := range []Ref{1, 1, 1, 1, 1, 1, 1, 1, 4, 1, 5, 2, 1} {
		f.Params = append(f.Params, Param{Type: r})
	}
	pl := Places(tab, f, "amd64")
	for i := range 8 {
		if pl[i].Pieces[0].Reg != i {
			t.Errorf("%d: %+v", i, pl[i])
		}
	}
	s, i9, a, h, last := pl[8].Pieces, pl[9].Pieces[0], pl[10].Pieces[0], pl[11].Pieces[0], pl[12].Pieces[0]
	if len(s) != 2 || !s[0].InStack || s[0].Stack != 8 || s[1].Stack != 16 || s[1].Off != 8 {
		t.Errorf("text: %+v", s)
	}
	if i9.Reg != 8 || !a.InStack || a.Stack != 24 || h.Stack != 28 || last.Stack != 32 {
		t.Errorf("after it: %+v %+v %+v %+v", i9, a, h, last)
	}
}

// TestLeavesBounded: types that contain themselves end.
func TestLeavesBounded(t *testing.T) {
	tab := &Table{Types: []Type{{}, {Kind: KindStruct, Size: 8, Span: nil, Fields: []Field{{Type: 1}, {Type: 1}}}, {Kind: KindArray, Size: 8, Count: 1, Elem: 2}}}
	for r := Ref(1); r <= 2; r++ {
		if _, ok := tab.leaves(tab.Get(r), 0, 0, nil); ok {
			t.Errorf("%d has leaves", r)
		}
		tab.address(tab.Get(r), 0, 0)
		f := &Func{Params: []Param{{Type: r}}, Language: langRust}
		Places(tab, f, "amd64")
		Places(tab, f, "arm64")
	}
}
