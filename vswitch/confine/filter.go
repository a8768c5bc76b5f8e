package confine

import (
	"fmt"
	"runtime"
	"unsafe"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// fails returns the action that makes a system call fail.
func fails(errno unix.Errno) seccomp.Action {
	return seccomp.Action(unix.SECCOMP_RET_ERRNO | uint32(errno))
}

// known returns the system calls that exist on this architecture.
func known(names []string) []string {
	info, err := arch.GetInfo("")
	if err != nil {
		return names // assemble reports it
	}
	var have []string
	for _, name := range names {
		if _, is := info.SyscallNames[name]; is {
			have = append(have, name)
		}
	}
	return have
}

// assemble compiles a policy into a filter. System calls of another architecture, such as 32 bits on amd64, fail: by
// default the library applies the policy's default action to them, which would allow what the policy denies.
func assemble(policy seccomp.Policy) ([]bpf.RawInstruction, error) {
	own, err := arch.GetInfo("")
	if err != nil {
		return nil, err
	}
	program, err := policy.Assemble()
	if err != nil {
		return nil, err
	}
	const offsetOfArchitecture = 4 // in struct seccomp_data
	foreign := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetOfArchitecture, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(own.ID), SkipTrue: 1},
		bpf.RetConstant{Val: uint32(fails(unix.ENOSYS))},
	}
	return bpf.Assemble(append(foreign, program...))
}

// loadFilter installs a policy in all threads. It needs no_new_privs or SYS_ADMIN.
func loadFilter(policy seccomp.Policy) error {
	program, err := assemble(policy)
	if err != nil {
		return fmt.Errorf("make seccomp filter: %w", err)
	}
	instructions := make([]unix.SockFilter, len(program))
	for i, in := range program {
		instructions[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	fprog := unix.SockFprog{Len: uint16(len(instructions)), Filter: &instructions[0]}
	// Kernels before 5.16 enable mitigations in processes with a filter that are for untrusted code. This process does
	// not need them.
	const flags = unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags,
		uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(instructions)
	switch {
	case errno != 0:
		err = errno
	case thread != 0:
		err = fmt.Errorf("thread %d has another filter", thread)
	}
	if err != nil {
		return fmt.Errorf("install seccomp filter: %w", err)
	}
	return nil
}
