package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// patience is how long a client waits for a reply that must come: TCP retransmissions on a busy machine are late, but
// not lost.
const patience = 20 * time.Second

// fetch prints the body at a URL, or COUNT of them, each over a new connection, at the same time.
func fetch(out io.Writer, arguments []string) error {
	if len(arguments) == 0 || len(arguments) > 2 {
		return fmt.Errorf("usage: http URL [COUNT]")
	}
	count := 1
	if len(arguments) == 2 {
		var err error
		if count, err = strconv.Atoi(arguments[1]); err != nil {
			return err
		}
	}
	bodies := make([][]byte, count)
	var group errgroup.Group
	for i := range bodies {
		group.Go(func() (err error) {
			bodies[i], err = fetchOne(arguments[0])
			return err
		})
	}
	err := group.Wait()
	_, written := out.Write(bytes.Join(bodies, nil))
	return errors.Join(err, written)
}

func fetchOne(url string) ([]byte, error) {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status of the server: %s", response.Status)
	}
	return body, err
}

func tcp(out io.Writer, arguments []string) error { return exchange(out, "tcp", arguments) }

func udp(out io.Writer, arguments []string) error { return exchange(out, "udp", arguments) }

// exchange sends a text and prints as many bytes of the reply.
func exchange(out io.Writer, network string, arguments []string) error {
	if len(arguments) != 2 {
		return fmt.Errorf("usage: %s HOST:PORT TEXT", network)
	}
	conn, err := net.DialTimeout(network, arguments[0], patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, arguments[1]); err != nil {
		return err
	}
	answer := make([]byte, len(arguments[1]))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", answer)
	return err
}

// stream sends a number at intervals over one connection, and fails without an echo.
func stream(out io.Writer, arguments []string) error {
	if len(arguments) != 2 {
		return fmt.Errorf("usage: stream HOST:PORT INTERVAL")
	}
	interval, err := time.ParseDuration(arguments[1])
	if err != nil {
		return err
	}
	conn, err := net.DialTimeout("tcp", arguments[0], patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for number := 1; ; number++ {
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		text := fmt.Sprintf("%d\n", number)
		if _, err := io.WriteString(conn, text); err != nil {
			return err
		}
		answer := make([]byte, len(text))
		if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != text {
			return fmt.Errorf("echo of number %d is %q: %w", number, answer, err)
		}
		fmt.Fprintf(out, "%s answers %d\n", arguments[0], number)
		<-tick.C
	}
}

// links prints one line for each address of each interface, and one for an interface without.
func links(out io.Writer, _ []string) error {
	interfaces, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil {
			return err
		}
		if len(addresses) == 0 {
			fmt.Fprintf(out, "%s %s mtu %d\n", i.Name, i.HardwareAddr, i.MTU)
		}
		for _, address := range addresses {
			fmt.Fprintf(out, "%s %s mtu %d %s\n", i.Name, i.HardwareAddr, i.MTU, address)
		}
	}
	return nil
}
