// Package event is sonde's vocabulary: what a session delivers, whatever probe made it and whichever sink prints it.
//
// It is not a decoder and knows no kernel. Its one invariant: a value that could not be read is never shown as
// empty or zero; it is a node of kind [KindUnreadable] or carries [AttrTruncated], with the facts beside it.
package event
