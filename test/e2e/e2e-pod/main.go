// Command e2e-pod is the program of the pods of the end-to-end tests: small servers, and clients for them.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// command is a subcommand; it writes its result to out.
type command func(out io.Writer, arguments []string) error

var commands = map[string]command{
	"pause":   pause,   // end on SIGTERM, reap children: a sandbox's first process
	"serve":   serve,   // [-http 8080] [-echo 7] [-open PORT,...]: HTTP, TCP and UDP echo, SCTP associations
	"http":    fetch,   // URL [COUNT]: print the bodies of concurrent requests
	"tcp":     tcp,     // HOST:PORT TEXT: print the echo
	"udp":     udp,     // HOST:PORT TEXT: print the echo
	"ping":    ping,    // ADDRESS [COUNT [INTERVAL]]: print the replies; COUNT 0 = unlimited
	"outages": outages, // ADDRESS INTERVAL: print times without replies and the number of lost requests, without end
	"bulk":    bulk,    // HOST:PORT BYTES: print the rate of an echo over one connection
	"stream":  stream,  // HOST:PORT INTERVAL: print the echoes over one connection, without end
	"knock":   knock,   // [-patient] PROTOCOL/HOST:PORT ...: print which ports answer
	// PROTOCOL/HOST:PORT INTERVAL TIMEOUT: print which of repeated contacts are answered, without end
	"knocks": knocks,
	"env":    env,    // the environment
	"links":  links,  // the interfaces with their addresses
	"api":    api,    // [PATH]: print the API server's response to the pod's service account
	"write":  write,  // FILE TEXT: a file on a volume
	"ip":     ip,     // route add PREFIX via ADDRESS | address add|del PREFIX dev LINK, as iproute2
	"sysctl": sysctl, // -w KEY=VALUE, as procps
}

// then separates commands that run one after the other.
const then = "then"

func main() {
	for rest := os.Args[1:]; ; {
		one := rest
		more := false
		if i := slices.Index(rest, then); i >= 0 {
			one = rest[:i]
			rest = rest[i+1:]
			more = true
		}
		if len(one) == 0 || commands[one[0]] == nil {
			fmt.Fprintln(os.Stderr,
				"usage: e2e-pod pause|serve|http|tcp|udp|ping|outages|bulk|stream|knock|knocks|env|links|api|write|ip|sysctl [arguments] [then ...]")
			os.Exit(2)
		}
		if err := commands[one[0]](os.Stdout, one[1:]); err != nil {
			fmt.Fprintf(os.Stderr, "e2e-pod %s: %v\n", strings.Join(one, " "), err)
			os.Exit(1)
		}
		if !more {
			return
		}
	}
}

func env(out io.Writer, _ []string) error {
	all := os.Environ()
	slices.Sort(all)
	_, err := fmt.Fprintln(out, strings.Join(all, "\n"))
	return err
}

func write(_ io.Writer, arguments []string) error {
	if len(arguments) != 2 {
		return errors.New("usage: write FILE TEXT")
	}
	return os.WriteFile(arguments[0], []byte(arguments[1]), 0o644)
}
