// Package attach loads and attaches the generated kernel programs and knows what the running kernel can do. Opening is
// all or nothing: an error leaves no map, program or link behind.
package attach

import "errors"

var errNotYet = errors.New("not built yet")
