package memif

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An eventfd is the client's, shared with it, flags and all: a client that fills the counter and clears O_NONBLOCK blocks
// the writer, for ever. Only the kernel itself adds to an eventfd without waiting. So it is asked to: an asynchronous
// read of nothing that tells the eventfd when it is done, which is at once.
type completer struct {
	context uintptr
	nothing int // a file to read nothing of
}

const (
	// completions is how many may wait to be taken back.
	completions = 64
	// iocbRead is IOCB_CMD_PREAD.
	iocbRead = 0
	// iocbTell is IOCB_FLAG_RESFD: add to the eventfd when done.
	iocbTell = 1
	// completionSize is that of struct io_event.
	completionSize = 32
)

// iocb is the kernel's struct of that name on little endian machines.
type iocb struct {
	_             uint64 // data
	_, _          uint32 // key, flags of the read
	opcode        uint16
	_             int16 // priority
	fd            uint32
	_, _          uint64 // buffer and its length: nothing
	_, _          uint64 // offset, reserved
	flags, tellFD uint32
}

var (
	// theCompleter is the process's one, because a machine has few contexts to give; nil while there is none.
	theCompleter atomic.Pointer[completer]
	preparing    sync.Mutex

	openCompleter = newCompleter // a test's may fail
)

// Prepare opens what a server needs to notify its clients without waiting for them, unless it is open already. A server with many
// clients calls it when it starts, before the machine's contexts for asynchronous I/O are taken (fs.aio-max-nr). As long as it
// fails clients are refused, and it is tried again with each of them.
func Prepare() error {
	if theCompleter.Load() != nil {
		return nil
	}
	preparing.Lock()
	defer preparing.Unlock()
	if theCompleter.Load() != nil {
		return nil
	}
	c, err := openCompleter()
	if err != nil {
		return err
	}
	theCompleter.Store(c)
	return nil
}

func newCompleter() (*completer, error) {
	fd, err := unix.MemfdCreate("memif bell", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("prepare notifications: %w", err)
	}
	c := &completer{nothing: fd}
	_, _, errno := unix.Syscall(unix.SYS_IO_SETUP, completions, uintptr(unsafe.Pointer(&c.context)), 0)
	if errno != 0 {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("prepare notifications by asynchronous I/O: %w", errno)
	}
	return c, nil
}

// notify adds one to a peer's eventfd. It never waits for the peer, whatever that does to the eventfd.
func notify(eventfd int) {
	c := theCompleter.Load()
	if c == nil {
		return // a server has no connections then
	}
	request := iocb{opcode: iocbRead, fd: uint32(c.nothing), flags: iocbTell, tellFD: uint32(eventfd)}
	list := [1]*iocb{&request}
	for c.submit(&list) == unix.EAGAIN {
		c.takeBack()
	}
}

func (c *completer) submit(list *[1]*iocb) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_IO_SUBMIT, c.context, 1, uintptr(unsafe.Pointer(list)))
	return errno
}

func (c *completer) takeBack() {
	var events [completions * completionSize]byte
	var now unix.Timespec
	_, _, _ = unix.RawSyscall6(unix.SYS_IO_GETEVENTS, c.context, 0, completions,
		uintptr(unsafe.Pointer(&events)), uintptr(unsafe.Pointer(&now)), 0)
}

// notifyByWrite adds one to an eventfd that this process has made and shares, if at all, with a server that it trusts. It looks first
// whether the write would wait.
func notifyByWrite(eventfd int) {
	look := []unix.PollFd{{Fd: int32(eventfd), Events: unix.POLLOUT}}
	if n, err := unix.Poll(look, 0); n != 1 || err != nil {
		return
	}
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(eventfd, one[:])
}
