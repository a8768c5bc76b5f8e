package confine

import (
	"encoding/binary"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// known would hide a misspelt name, which no architecture has.
func TestEachSystemCallExists(t *testing.T) {
	for _, name := range slices.Concat(DeniedSyscalls, BrokerSyscalls) {
		exists := false
		for _, a := range []string{"amd64", "arm64", "386"} {
			info, err := arch.GetInfo(a)
			if err != nil {
				t.Fatal(err)
			}
			_, is := info.SyscallNames[name]
			exists = exists || is
		}
		if !exists {
			t.Errorf("no system call %s", name)
		}
	}
}

func TestSecurityPageNamesTheSystemCalls(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, denied, _ := strings.Cut(string(page), "\n**System calls that `weft-vswitch` is denied.**")
	denied, allowed, both := strings.Cut(denied, "\n**System calls that the broker is allowed.**")
	if !both {
		t.Fatal("no lists on the page")
	}
	word := func(text, name string) bool { return regexp.MustCompile(`\b` + name + `\b`).MatchString(text) }
	for _, name := range DeniedSyscalls {
		if !word(denied, name) {
			t.Errorf("%s is denied, and docs/security.md does not say so", name)
		}
	}
	info, err := arch.GetInfo("amd64")
	if err != nil {
		t.Fatal(err)
	}
	lists, _, _ := strings.Cut(denied, "\n- by their arguments")
	for _, name := range regexp.MustCompile(`\w+`).FindAllString(lists, -1) {
		if _, is := info.SyscallNames[name]; is && !slices.Contains(DeniedSyscalls, name) {
			t.Errorf("docs/security.md says that %s is denied, which it is not", name)
		}
	}
	for _, name := range BrokerSyscalls {
		if !word(allowed, name) {
			t.Errorf("%s is allowed, and docs/security.md does not say so", name)
		}
	}
}

func TestSystemCallsOfOtherArchitecturesFail(t *testing.T) {
	own, err := arch.GetInfo("")
	if err != nil {
		t.Fatal(err)
	}
	const (
		i386 = 0x40000003
		x32  = 0x40000000
	)
	failed := int(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS))
	for name, policy := range map[string]seccomp.Policy{"dataplane": denied(), "broker": allowed()} {
		vm := machine(t, policy)
		read := uint32(own.SyscallNames["read"])
		if got := runFilter(t, vm, uint32(own.ID), read); got != unix.SECCOMP_RET_ALLOW {
			t.Errorf("%s: read: %#x", name, got)
		}
		if got := runFilter(t, vm, i386, read); got != failed {
			t.Errorf("%s: a system call of 32 bits: %#x", name, got)
		}
		if own == arch.X86_64 {
			if got := runFilter(t, vm, uint32(own.ID), read|x32); got != failed {
				t.Errorf("%s: a system call of x32: %#x", name, got)
			}
		}
	}
}

func machine(t *testing.T, policy seccomp.Policy) *bpf.VM {
	t.Helper()
	raw, err := assemble(policy)
	if err != nil {
		t.Fatal(err)
	}
	instructions, all := bpf.Disassemble(raw)
	if !all {
		t.Fatal("instructions that cannot be disassembled")
	}
	vm, err := bpf.NewVM(instructions)
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// runFilter runs the filter on a struct seccomp_data, with words in network byte order.
func runFilter(t *testing.T, vm *bpf.VM, architecture, number uint32) int {
	t.Helper()
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data, number)
	binary.BigEndian.PutUint32(data[4:], architecture)
	action, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return action
}
