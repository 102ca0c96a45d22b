// Package recording is the container in which a session is kept: raw records as they left the ring and the facts that
// decode them later, on another machine, without privileges. It knows nothing of what the records mean. Its invariant:
// what was written before a cut or a crash is readable up to the cut, and nothing that a file says is believed before
// its checksum and its bounds have been checked.
//
// A file is a preamble and a run of chunks:
//
//	preamble  "SONDE\r\n\x1a", version u32
//	chunk     kind u32, stored length u32, raw length u32, CRC-32C of the stored bytes u32, then the stored bytes
//
// All numbers are little-endian. Stored bytes are one zstd frame that inflates to raw length bytes; each chunk stands
// alone. The first chunk is the header. A file that was closed ends with a ledger chunk and an index chunk; one without
// them was cut.
package recording

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/sonde-trace/sonde/event"
)

// Version is the newest format this package writes and reads.
const Version = 1

const magic = "SONDE\r\n\x1a"

// Kind of a chunk. Readers skip kinds they do not know, so that an older sonde reads what it understands of a newer file
// of the same version.
type Kind uint32

const (
	kindHeader  Kind = 1
	kindRecords Kind = 2 // raw records, in the order in which the session saw them
	kindLedger  Kind = 3
	kindIndex   Kind = 4
)

// Bounds that hold for every file; Writer keeps them and Reader enforces them.
const (
	maxChunk  = 16 << 20 // raw bytes of one chunk
	maxHeader = 4 << 20
	chunkHead = 16
	// A batch that is larger than this is stored at once; smaller ones are gathered.
	chunkGoal = 1 << 20
)

var (
	// ErrForeign is returned for a file that is not a recording.
	ErrForeign = errors.New("not a sonde recording")
	// ErrNewer is returned for a recording made by a newer sonde than this one.
	ErrNewer = errors.New("recording is from a newer version of sonde")
	// ErrCut is returned by Next where the file ends before it was closed, or where its bytes are damaged. Everything
	// delivered before it is good.
	ErrCut = errors.New("recording is cut here")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header says where a recording comes from.
type Header struct {
	Created time.Time `json:"created"`
	Sonde   string    `json:"sonde"`  // version of the program that wrote the file
	Kernel  string    `json:"kernel"` // uname -r of the machine
	Arch    string    `json:"arch"`   // GOARCH of the machine: "amd64", "arm64"
	Command []string  `json:"command,omitempty"`
	// Session is the plan of the session that made the records; package tracer writes and reads it.
	Session json.RawMessage `json:"session"`
}

// Writer writes one recording. It is not safe for concurrent use.
type Writer struct {
	w      io.Writer
	enc    *zstd.Encoder
	raw    []byte // records not yet stored
	stored []byte
	offset int64
	index  []indexEntry
	err    error
	closed bool
}

type indexEntry struct {
	Kind   Kind  `json:"kind"`
	Offset int64 `json:"offset"` // of the chunk in the file
	Raw    int   `json:"raw"`    // length of its content
}

// NewWriter writes the preamble and the header to w. The caller owns w and closes it after Close.
func NewWriter(w io.Writer, h *Header) (*Writer, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, fmt.Errorf("open recording: %w", err)
	}
	content, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode the header of the recording: %w", err)
	}
	if len(content) > maxHeader {
		return nil, fmt.Errorf("the header of the recording has %d bytes; at most %d fit", len(content), maxHeader)
	}
	rw := &Writer{w: w, enc: enc}
	preamble := binary.LittleEndian.AppendUint32([]byte(magic), Version)
	if err := rw.write(preamble); err != nil {
		return nil, err
	}
	if err := rw.chunk(kindHeader, content); err != nil {
		return nil, err
	}
	return rw, nil
}

// Batch adds raw records. The slice may be reused when it returns. An error of the underlying writer is returned by every
// later call too.
func (w *Writer) Batch(records []byte) error {
	for len(records) > 0 && w.err == nil {
		n := min(len(records), maxChunk-len(w.raw))
		if n < len(records) {
			n = wholeRecords(records, n)
			if n == 0 && len(w.raw) == 0 {
				return fmt.Errorf("a record of more than %d bytes does not fit into a recording", maxChunk)
			}
		}
		w.raw = append(w.raw, records[:n]...)
		records = records[n:]
		if len(w.raw) >= chunkGoal || len(records) > 0 {
			w.flush()
		}
	}
	return w.err
}

// wholeRecords returns how many of the first n bytes are whole records. Each record starts with its size, records follow
// each other 8-aligned.
func wholeRecords(records []byte, n int) int {
	end := 0
	for end+4 <= len(records) {
		size := int(binary.LittleEndian.Uint32(records[end:]))
		next := end + (size+7)&^7
		if size < 4 || next > n {
			break
		}
		end = next
	}
	return end
}

// Flush stores what has been gathered, so that a reader of the file sees it.
func (w *Writer) Flush() error {
	w.flush()
	return w.err
}

func (w *Writer) flush() {
	if len(w.raw) == 0 || w.err != nil {
		return
	}
	w.chunk(kindRecords, w.raw)
	w.raw = w.raw[:0]
}

// Close stores the rest, the ledger and the index. It does not close the underlying writer. Closing twice is harmless.
func (w *Writer) Close(l *event.Ledger) error {
	if w.closed {
		return w.err
	}
	w.closed = true
	w.flush()
	if w.err != nil {
		return w.err
	}
	content, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encode the ledger of the recording: %w", err)
	}
	w.chunk(kindLedger, content)
	content, err = json.Marshal(w.index)
	if err != nil {
		return fmt.Errorf("encode the index of the recording: %w", err)
	}
	w.chunk(kindIndex, content)
	return w.err
}

func (w *Writer) chunk(k Kind, raw []byte) error {
	if w.err != nil {
		return w.err
	}
	w.stored = append(w.stored[:0], make([]byte, chunkHead)...)
	w.stored = w.enc.EncodeAll(raw, w.stored)
	body := w.stored[chunkHead:]
	binary.LittleEndian.PutUint32(w.stored[0:], uint32(k))
	binary.LittleEndian.PutUint32(w.stored[4:], uint32(len(body)))
	binary.LittleEndian.PutUint32(w.stored[8:], uint32(len(raw)))
	binary.LittleEndian.PutUint32(w.stored[12:], crc32.Checksum(body, castagnoli))
	w.index = append(w.index, indexEntry{Kind: k, Offset: w.offset, Raw: len(raw)})
	return w.write(w.stored)
}

func (w *Writer) write(b []byte) error {
	n, err := w.w.Write(b)
	w.offset += int64(n)
	if err != nil {
		w.err = fmt.Errorf("write recording: %w", err)
	}
	return w.err
}

// Reader reads one recording from start to end. It is not safe for concurrent use.
type Reader struct {
	Header Header
	// Ledger is the account of the recorded session, nil until Next has returned io.EOF on a file that was closed.
	Ledger *event.Ledger

	r      *bufio.Reader
	dec    *zstd.Decoder
	offset int64
	stored []byte
	raw    []byte
	done   error
}

// NewReader reads the preamble and the header. It returns ErrForeign or ErrNewer (test with errors.Is) for files that it
// cannot read, and ErrCut for one that ends inside its header.
func NewReader(r io.Reader) (*Reader, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxChunk+1<<20))
	if err != nil {
		return nil, fmt.Errorf("open recording: %w", err)
	}
	rr := &Reader{r: bufio.NewReaderSize(r, 256<<10), dec: dec}
	preamble := make([]byte, len(magic)+4)
	n, err := io.ReadFull(rr.r, preamble)
	rr.offset = int64(n)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && err != io.EOF {
		rr.Close()
		return nil, fmt.Errorf("read recording: %w", err)
	}
	if head := min(n, len(magic)); string(preamble[:head]) != magic[:head] || n == 0 {
		rr.Close()
		return nil, ErrForeign
	}
	if n < len(preamble) {
		rr.Close()
		return nil, fmt.Errorf("%w: it has %d bytes only", ErrCut, n)
	}
	if v := binary.LittleEndian.Uint32(preamble[len(magic):]); v != Version {
		rr.Close()
		return nil, fmt.Errorf("%w: format %d, this one reads %d", ErrNewer, v, Version)
	}
	kind, content, err := rr.chunk()
	if err == io.EOF {
		err = fmt.Errorf("%w: it ends before its header", ErrCut)
	}
	if err == nil && kind != kindHeader {
		err = fmt.Errorf("%w: its first chunk is not a header", ErrForeign)
	}
	if err == nil {
		if e := json.Unmarshal(content, &rr.Header); e != nil {
			err = fmt.Errorf("%w: header: %v", ErrForeign, e)
		}
	}
	if err != nil {
		rr.Close()
		return nil, err
	}
	return rr, nil
}

// Next returns the next batch of raw records, valid until the following call. At the end of a closed recording it returns
// io.EOF; where the file is cut or damaged it returns an error that is ErrCut and says how far the file is good.
func (r *Reader) Next() ([]byte, error) {
	for r.done == nil {
		kind, content, err := r.chunk()
		if err == io.EOF && r.Ledger == nil {
			err = fmt.Errorf("%w, after %d bytes: the session that wrote it was not closed", ErrCut, r.offset)
		}
		if err != nil {
			r.done = err
			break
		}
		switch kind {
		case kindRecords:
			return content, nil
		case kindLedger:
			l := new(event.Ledger)
			if err := json.Unmarshal(content, l); err != nil {
				r.done = fmt.Errorf("%w: ledger: %v", ErrCut, err)
				return nil, r.done
			}
			r.Ledger = l
		}
	}
	return nil, r.done
}

// chunk reads one chunk. It returns io.EOF where the file ends between chunks.
func (r *Reader) chunk() (Kind, []byte, error) {
	var head [chunkHead]byte
	at := r.offset
	n, err := io.ReadFull(r.r, head[:])
	r.offset += int64(n)
	if err == io.EOF {
		return 0, nil, io.EOF
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, nil, fmt.Errorf("%w, at byte %d", ErrCut, at)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("read recording: %w", err)
	}
	kind := Kind(binary.LittleEndian.Uint32(head[0:]))
	size := binary.LittleEndian.Uint32(head[4:])
	rawSize := binary.LittleEndian.Uint32(head[8:])
	sum := binary.LittleEndian.Uint32(head[12:])
	// zstd never grows its input by more than a few bytes a block.
	if rawSize > maxChunk || size > maxChunk+maxChunk/64 {
		return 0, nil, fmt.Errorf("%w, at byte %d: a chunk claims %d bytes, more than any has", ErrCut, at, max(size, rawSize))
	}
	if cap(r.stored) < int(size) {
		r.stored = make([]byte, size)
	}
	r.stored = r.stored[:size]
	n, err = io.ReadFull(r.r, r.stored)
	r.offset += int64(n)
	if err != nil {
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			return 0, nil, fmt.Errorf("%w, at byte %d", ErrCut, at)
		}
		return 0, nil, fmt.Errorf("read recording: %w", err)
	}
	if crc32.Checksum(r.stored, castagnoli) != sum {
		return 0, nil, fmt.Errorf("%w, at byte %d: the bytes do not match their checksum", ErrCut, at)
	}
	raw, err := r.dec.DecodeAll(r.stored, r.raw[:0])
	if err != nil {
		return 0, nil, fmt.Errorf("%w, at byte %d: %v", ErrCut, at, err)
	}
	if len(raw) != int(rawSize) {
		return 0, nil, fmt.Errorf("%w, at byte %d: a chunk has %d bytes and claims %d", ErrCut, at, len(raw), rawSize)
	}
	r.raw = raw
	return kind, raw, nil
}

// Close releases the decoder. It does not close the underlying reader.
func (r *Reader) Close() { r.dec.Close() }
