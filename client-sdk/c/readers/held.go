// Says whether a hold is held, and until when: held PAGE SESSION HOLD SLOT. Exit status 0 if it is held, 1 if not, 2 if
// the page cannot be read. Without cgo, for Linux; names are those of ../tenure_page.h, docs/page.md has the contract.
package main

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"unsafe"
)

const (
	magic, version, slotsMax, slotSize          = "TENUREP1", 1, 4095, 64
	versionAt, slotsAt, sessionAt, validUntilAt = 8, 12, 16, 24
	// A clock that goes on while the machine sleeps, as Go's own clocks do not.
	clockBoottime = 7
)

// A page that is mapped. Its processor is little endian, as amd64 and arm64 are.
type page []byte

func open(path string, session [2]uint64) (page, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	status, err := file.Stat()
	if err != nil || status.Size() < slotSize || status.Size() > slotSize*(slotsMax+1) {
		return nil, fmt.Errorf("%s has not the size of a page", path)
	}
	content, err := syscall.Mmap(int(file.Fd()), 0, int(status.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	slots, of := binary.LittleEndian.Uint32(content[slotsAt:]), binary.LittleEndian.Uint32(content[versionAt:])
	if string(content[:len(magic)]) != magic || of != version || len(content)/slotSize <= int(slots) {
		return nil, fmt.Errorf("%s has not this layout: is the agent of another version?", path)
	}
	if !page(content).names(sessionAt, session) {
		return nil, fmt.Errorf("%s is not of this session", path)
	}
	return content[:slotSize*(int(slots)+1)], nil
}

// The word of 8 bytes at an offset, by one atomic load.
func (p page) load(at int) uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&p[at])))
}

func (p page) names(at int, uuid [2]uint64) bool {
	return p.load(at) == uuid[0] && p.load(at+8) == uuid[1]
}

// Until when the hold is valid, ns; 0 if it is not held at this instant.
func (p page) heldUntil(slot int, hold [2]uint64) uint64 {
	at := slotSize * (slot + 1)
	if slot < 0 || at+slotSize > len(p) {
		return 0
	}
	// In this order: a valid-until that is read before the slot is seen to be this hold's can only be this hold's. The
	// clock comes last: a thread that was stopped in between must not compare with an earlier now.
	until := p.load(at + validUntilAt)
	if p.names(at, hold) && now() < until {
		return until
	}
	return 0
}

// Now, ns. A clock that fails is the end of time: nothing is held.
func now() uint64 {
	var time syscall.Timespec
	_, _, failed := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&time)), 0)
	if failed != 0 {
		return math.MaxUint64
	}
	return uint64(time.Nano())
}

// The two words of a uuid, whose bytes are in the order in which they are written.
func uuid(text string) [2]uint64 {
	bytes, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(bytes) != 16 {
		fail(fmt.Errorf("%q is no uuid", text))
	}
	return [2]uint64{binary.LittleEndian.Uint64(bytes), binary.LittleEndian.Uint64(bytes[8:])}
}

func fail(err error) {
	fmt.Fprintf(os.Stderr, "%v; usage: held PAGE SESSION HOLD SLOT\n", err)
	os.Exit(2)
}

func main() {
	arguments := append(os.Args, "", "", "", "")
	page, err := open(arguments[1], uuid(arguments[2]))
	if err != nil {
		fail(err)
	}
	slot, err := strconv.Atoi(arguments[4])
	if err != nil {
		fail(err)
	}
	until := page.heldUntil(slot, uuid(arguments[3]))
	if until == 0 {
		fmt.Println("not held")
		os.Exit(1)
	}
	fmt.Println("held until", until)
}
