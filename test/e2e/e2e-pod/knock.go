package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// knockTimeout is how long knock waits for an answer. TCP sends its second SYN after a second.
const knockTimeout = 900 * time.Millisecond

// knock contacts all targets, PROTOCOL/HOST:PORT, at the same time, and prints a line for each: "TARGET open" if the
// port has answered, "TARGET silent" if nothing has, "TARGET ERROR" otherwise. With -patient, silent targets are
// contacted again until they must have answered: a busy machine is late, and drops datagrams of a burst.
func knock(out io.Writer, arguments []string) error {
	flags := flag.NewFlagSet("knock", flag.ContinueOnError)
	patient := flags.Bool("patient", false, "contact silent targets again")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	targets := flags.Args()
	if len(targets) == 0 {
		return errors.New("usage: knock [-patient] tcp|udp|sctp/HOST:PORT")
	}
	last := time.Now()
	if *patient {
		last = last.Add(patience)
	}
	results := make([]string, len(targets))
	var running sync.WaitGroup
	for i, target := range targets {
		running.Go(func() { results[i] = knockUntil(target, last) })
	}
	running.Wait()
	for i, target := range targets {
		if _, err := fmt.Fprintln(out, target, results[i]); err != nil {
			return err
		}
	}
	return nil
}

// knockUntil contacts a target once, and again while it is silent and the last time has not come.
func knockUntil(target string, last time.Time) string {
	for {
		answer := result(knockOne(target, knockTimeout))
		if answer != silent || time.Now().After(last) {
			return answer
		}
	}
}

// silent is the result of a contact without an answer.
const silent = "silent"

func result(err error) string {
	if err == nil {
		return "open"
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return silent
	}
	return strings.ReplaceAll(err.Error(), "\n", " ")
}

func knockOne(target string, timeout time.Duration) error {
	protocol, address, _ := strings.Cut(target, "/")
	if protocol == "sctp" {
		return initiate(address, time.Now().Add(timeout))
	}
	dialer := net.Dialer{Deadline: time.Now().Add(timeout)}
	conn, err := dialer.Dial(protocol, address)
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		return os.ErrDeadlineExceeded
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(dialer.Deadline); err != nil {
		return err
	}
	const text = "knock"
	if _, err := io.WriteString(conn, text); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, len(text)))
	return err
}

// knocks contacts a target at intervals without end, and does not wait for an answer before the next contact. It prints
// a line for each contact, in their order: when it began and when it ended, in Unix milliseconds, and its result, as
// knock does.
func knocks(out io.Writer, arguments []string) error {
	if len(arguments) != 3 {
		return errors.New("usage: knocks tcp|udp|sctp/HOST:PORT INTERVAL TIMEOUT")
	}
	interval, err := time.ParseDuration(arguments[1])
	if err != nil {
		return err
	}
	timeout, err := time.ParseDuration(arguments[2])
	if err != nil {
		return err
	}
	if interval <= 0 {
		return fmt.Errorf("interval %s is not positive", interval)
	}
	contacts := make(chan chan string, 2+timeout/interval)
	go func() {
		for range time.Tick(interval) {
			line := make(chan string, 1)
			contacts <- line
			go func() {
				began := time.Now().UnixMilli()
				answer := result(knockOne(arguments[0], timeout))
				line <- fmt.Sprintln(began, time.Now().UnixMilli(), answer)
			}()
		}
	}()
	for line := range contacts {
		if _, err := io.WriteString(out, <-line); err != nil {
			return err
		}
	}
	return nil
}

// open serves TCP and UDP echo, and answers SCTP associations, on all addresses and the given ports. It returns the
// first error.
func open(ports []uint16) error {
	failed := make(chan error, 2*len(ports)+1)
	for _, port := range ports {
		streams, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		datagrams, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		go func() { failed <- echoStreams(streams) }()
		go func() { failed <- echoDatagrams(datagrams) }()
	}
	for _, network := range []string{"ip4:132", "ip6:132"} { // the name sctp needs /etc/protocols
		conn, err := net.ListenPacket(network, "")
		if err != nil {
			return err
		}
		go func() { failed <- acknowledge(conn, ports) }()
	}
	return <-failed
}
