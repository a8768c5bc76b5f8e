// Command e2e-pod is what runs in the pods of the end-to-end tests: small servers, and the clients to reach them.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// command is one thing the program does; it writes its answer to out.
type command func(out io.Writer, arguments []string) error

var commands = map[string]command{
	"pause":   pause,   // end on SIGTERM, reap children: a sandbox's first process
	"serve":   serve,   // [-http 8080] [-echo 7]: HTTP, and TCP and UDP echo
	"http":    fetch,   // URL: the body
	"tcp":     tcp,     // HOST:PORT TEXT: what comes back
	"udp":     udp,     // HOST:PORT TEXT: what comes back
	"ping":    ping,    // ADDRESS [COUNT [INTERVAL]]: the answers; COUNT 0 is for ever
	"outages": outages, // ADDRESS INTERVAL: how long there was no answer, and how many, for ever
	"bulk":    bulk,    // HOST:PORT BYTES: how fast so many come back, the same, over one connection
	"stream":  stream,  // HOST:PORT INTERVAL: what comes back over one connection, for ever
	"env":     env,     // the environment
	"links":   links,   // the interfaces with their addresses
	"api":     api,     // [PATH]: what the API server says to the pod's service account
	"write":   write,   // FILE TEXT: a file on a volume
}

// then stands between commands that are run one after the other.
const then = "then"

func main() {
	for rest := os.Args[1:]; ; {
		one, more := rest, false
		if i := slices.Index(rest, then); i >= 0 {
			one, rest, more = rest[:i], rest[i+1:], true
		}
		if len(one) == 0 || commands[one[0]] == nil {
			fmt.Fprintln(os.Stderr, "usage: e2e-pod pause|serve|http|tcp|udp|ping|outages|bulk|stream|env|links|api|write [arguments] [then ...]")
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
