package memif

import (
	"encoding/binary"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An eventfd is the client's, shared with it, flags and all: a client that fills the counter and clears O_NONBLOCK blocks
// whoever writes, for ever. Only the kernel itself adds to an eventfd without waiting. So it is asked to: an asynchronous
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

// theCompleter is the process's one: a machine has few contexts to give. nil where the kernel has none.
var theCompleter = sync.OnceValue(newCompleter)

// Prepare opens what the process needs to wake its peers, which otherwise the first of them has it do: a server that has
// many does it when it starts, before descriptors are scarce.
func Prepare() { theCompleter() }

func newCompleter() *completer {
	fd, err := unix.MemfdCreate("memif bell", unix.MFD_CLOEXEC)
	if err != nil {
		return nil
	}
	c := &completer{nothing: fd}
	_, _, errno := unix.Syscall(unix.SYS_IO_SETUP, completions, uintptr(unsafe.Pointer(&c.context)), 0)
	if errno != 0 {
		_ = unix.Close(fd)
		return nil
	}
	return c
}

// strike adds one to the eventfd. It never waits for the peer.
func strike(eventfd int) {
	c := theCompleter()
	if c == nil {
		strikeByWrite(eventfd)
		return
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

// strikeByWrite is for kernels without asynchronous I/O: it looks first whether the write would wait.
func strikeByWrite(eventfd int) {
	look := []unix.PollFd{{Fd: int32(eventfd), Events: unix.POLLOUT}}
	if n, err := unix.Poll(look, 0); n != 1 || err != nil {
		return
	}
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(eventfd, one[:])
}
