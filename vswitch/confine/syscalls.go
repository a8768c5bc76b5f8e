package confine

import (
	"os"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"golang.org/x/sys/unix"
)

// DeniedSyscalls are system calls that weft-vswitch never makes and that help an attacker who runs code in it. They
// fail with EPERM. The filter allows all others: the Go runtime may need more in its next release, and the end of the
// dataplane interrupts all pods of the node.
//
// execve is allowed, because the dataplane starts the memif broker again whenever it ends. An executed program inherits
// the filter and no_new_privs, and has no capabilities if the bounding set was emptied.
var DeniedSyscalls = []string{
	// Other processes.
	"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "pidfd_getfd", "kcmp",
	// Kernel code and the machine.
	"init_module", "finit_module", "delete_module", "create_module", "kexec_load", "kexec_file_load", "bpf",
	"perf_event_open",
	"reboot", "swapon", "swapoff", "acct", "syslog", "iopl", "ioperm", "personality", "quotactl",
	"quotactl_fd", "vhangup",
	"lookup_dcookie", "nfsservctl", "_sysctl", "sysfs", "uselib", "modify_ldt",
	// Clock and names of the machine.
	"settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname",
	// Mounts, root directories, files outside of the mounts.
	"mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "open_tree_attr", "fsopen", "fsconfig",
	"fsmount", "fspick",
	"mount_setattr", "open_by_handle_at", "name_to_handle_at", "mknod", "mknodat", "fanotify_init",
	// New namespaces; clone is below.
	"unshare",
	// Large parts of the kernel with frequent vulnerabilities.
	"add_key", "request_key", "keyctl", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
	"mbind", "set_mempolicy", "set_mempolicy_home_node", "migrate_pages", "move_pages", "execveat",
}

// newNamespaces are the flags of clone(2) that create namespaces.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER |
	unix.CLONE_NEWPID | unix.CLONE_NEWNET

// DataplaneFamilies are the address families of sockets that weft-vswitch may create.
var DataplaneFamilies = []uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK, unix.AF_PACKET}

// denied is the policy of weft-vswitch.
func denied() seccomp.Policy {
	var families seccomp.ArgumentConditions
	for _, family := range DataplaneFamilies {
		families = append(families, seccomp.Condition{Argument: 0, Operation: seccomp.NotEqual, Value: family})
	}
	return seccomp.Policy{
		DefaultAction: seccomp.ActionAllow,
		Syscalls: []seccomp.SyscallGroup{{
			Names:  known(DeniedSyscalls),
			Action: seccomp.ActionErrno, // EPERM
			NamesWithCondtions: []seccomp.NameWithConditions{
				{
					Name: "clone",
					Conditions: seccomp.ArgumentConditions{
						{Argument: 0, Operation: seccomp.BitsSet, Value: newNamespaces},
					},
				},
				{
					Name: "setns",
					Conditions: seccomp.ArgumentConditions{
						{Argument: 1, Operation: seccomp.NotEqual, Value: unix.CLONE_NEWNET},
					},
				},
				{Name: "socket", Conditions: families},
			},
		}, {
			// A filter cannot read its flags, which are in memory. Callers fall back to clone.
			Names:  known([]string{"clone3"}),
			Action: fails(unix.ENOSYS),
		}},
	}
}

// BrokerSyscalls are the system calls that the memif broker may make. All others fail with EPERM.
var BrokerSyscalls = []string{
	// Sockets and their descriptors. Only socket pairs can be created, and no file can be opened.
	"read", "write", "close", "recvmsg", "sendmsg", "accept4", "shutdown", "socketpair", "getsockname",
	"getpeername", "getsockopt",
	"fcntl",      // also F_GET_SEALS, which identifies shared memory
	"readlinkat", // of /proc/self/fd, which identifies eventfds
	// The Go runtime: polling, memory, threads, signals, time.
	"epoll_create1", "epoll_ctl", "epoll_pwait", "eventfd2", "pipe2",
	"munmap", "madvise", "mincore", "futex", "sched_yield", "sched_getaffinity", "nanosleep", "clock_nanosleep",
	"clock_gettime", "gettimeofday", "getrandom", "sigaltstack", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn",
	"restart_syscall",
	"getpid", "gettid", "set_robust_list", "rseq", "exit", "exit_group",
}

// allowed is the policy of the memif broker.
func allowed() seccomp.Policy {
	const executable = unix.PROT_EXEC
	only := func(name string, argument uint32, operation seccomp.Operation, value uint64) seccomp.NameWithConditions {
		return seccomp.NameWithConditions{Name: name,
			Conditions: seccomp.ArgumentConditions{{Argument: argument, Operation: operation, Value: value}}}
	}
	return seccomp.Policy{
		DefaultAction: seccomp.ActionErrno, // EPERM
		Syscalls: []seccomp.SyscallGroup{{
			Names:  known([]string{"clone3"}),
			Action: fails(unix.ENOSYS),
		}, {
			Names:  known(BrokerSyscalls),
			Action: seccomp.ActionAllow,
			NamesWithCondtions: []seccomp.NameWithConditions{
				only("mmap", 2, seccomp.BitsNotSet, executable),
				only("mprotect", 2, seccomp.BitsNotSet, executable),
				only("clone", 0, seccomp.BitsSet, unix.CLONE_THREAD),
				only("tgkill", 0, seccomp.Equal, uint64(os.Getpid())),
				only("prctl", 0, seccomp.Equal, unix.PR_SET_VMA), // the Go runtime names its memory
				only("ioctl", 1, seccomp.Equal, unix.SIOCOUTQ),   // whether a pod has read what was sent to it
			},
		}},
	}
}
