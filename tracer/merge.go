package tracer

import (
	"encoding/binary"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/wire"
)

// source is one ring.
type source interface {
	Read(dst []byte, max int, deadline time.Time) ([]byte, error)
}

// window is how long after its time a record can appear in its ring, in ns: the time is taken first, then memory is read
// and the ring's lock is taken. Across two CPUs 65 µs were seen.
const window = 1_000_000

// readMax bounds one read, and with it the memory for a batch.
const readMax = 1 << 20

// merger brings the records of several rings into one order of time. It is driven by one goroutine.
type merger struct {
	sources []source
	bufs    [][]byte // what was read in this round, by source
	lists   [][]stamp
	held    [2][]byte // records younger than the horizon of the last round; two that take turns
	turn    int
	out     []stamp
	batch   []wire.Record
	bad     uint64 // records whose size is out of the question
}

// stamp is a record and its time.
type stamp struct {
	time uint64
	rec  wire.Record
}

func newMerger(sources ...source) *merger {
	return &merger{sources: sources, bufs: make([][]byte, len(sources)), lists: make([][]stamp, len(sources)+1)}
}

// monotonic is the clock of the records.
func monotonic() uint64 {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return uint64(ts.Nano())
}

// next reads all sources, waiting for the first at most until deadline, and returns the records that can be ordered for
// good, in order, with the time before which nothing is to come. The records stay as they are until the next call. With
// final set everything is returned. read is the number of bytes that came.
func (m *merger) next(deadline time.Time, final bool) (batch []wire.Record, horizon uint64, read int, err error) {
	past := time.Unix(1, 0)
	for i, s := range m.sources {
		d := past
		if i == 0 {
			d = deadline
		}
		m.bufs[i], err = s.Read(m.bufs[i][:0], readMax, d)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, 0, read, err
		}
		if i == 0 {
			// Only now: the first source was waited for. Whatever shows up in any source from here on is younger.
			horizon = monotonic() - window
		}
		read += len(m.bufs[i])
		m.lists[i] = m.index(m.lists[i][:0], m.bufs[i])
		if len(m.bufs[i]) > readMax/2 && len(m.lists[i]) > 0 {
			// More may wait in this ring, as young as the last that was read.
			last := m.lists[i][len(m.lists[i])-1].time
			horizon = min(horizon, last-min(last, window))
		}
	}
	return m.order(horizon, final), horizon, read, nil
}

// holds reports whether records are held back.
func (m *merger) holds() bool { return len(m.held[m.turn]) > 0 }

// first cuts the first record off b; ok is false at the end and where the bytes are no record.
func (m *merger) first(b []byte) (r wire.Record, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	size := int(binary.LittleEndian.Uint32(b))
	if size < wire.HeaderSize || size > len(b) {
		m.bad++
		return nil, nil, false
	}
	return wire.Record(b[:size:size]), b[min((size+7)&^7, len(b)):], true
}

// split appends the records of b as they stand.
func (m *merger) split(list []wire.Record, b []byte) []wire.Record {
	for {
		r, rest, ok := m.first(b)
		if !ok {
			return list
		}
		list, b = append(list, r), rest
	}
}

// index lists the records of b and sorts them; they are nearly sorted.
func (m *merger) index(list []stamp, b []byte) []stamp {
	for {
		r, rest, ok := m.first(b)
		if !ok {
			break
		}
		list, b = append(list, stamp{r.Time(), r}), rest
	}
	for i := 1; i < len(list); i++ {
		if list[i].time >= list[i-1].time {
			continue
		}
		s, j := list[i], i
		for ; j > 0 && list[j-1].time > s.time; j-- {
			list[j] = list[j-1]
		}
		list[j] = s
	}
	return list
}

// order merges the lists up to the horizon and keeps the rest.
func (m *merger) order(horizon uint64, final bool) []wire.Record {
	held := len(m.sources)
	m.lists[held] = m.index(m.lists[held][:0], m.held[m.turn])
	m.turn ^= 1
	keep := m.held[m.turn][:0]
	m.batch = m.batch[:0]
	for {
		best := -1
		for i, l := range m.lists {
			if len(l) > 0 && (best < 0 || l[0].time < m.lists[best][0].time) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		s := m.lists[best][0]
		m.lists[best] = m.lists[best][1:]
		if !final && s.time > horizon {
			keep = append(keep, s.rec...)
			for len(keep)&7 != 0 {
				keep = append(keep, 0)
			}
			continue
		}
		m.batch = append(m.batch, s.rec)
	}
	m.held[m.turn] = keep
	return m.batch
}
