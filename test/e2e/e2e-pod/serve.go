package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

// serve serves HTTP with a page about the request, TCP and UDP echo, and what open does, on all addresses of both
// families, until SIGTERM. It prints "serving" when HTTP and the echo servers are ready.
func serve(out io.Writer, arguments []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	httpPort := flags.Int("http", 8080, "port of the HTTP server")
	echoPort := flags.Int("echo", 7, "port of the echo servers, TCP and UDP")
	var ports []uint16
	flags.Func("open",
		"comma-separated ports of further echo servers: TCP, UDP and SCTP", func(text string) (err error) {
			ports, err = parsePorts(text)
			return err
		})
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	web, err := net.Listen("tcp", fmt.Sprintf(":%d", *httpPort))
	if err != nil {
		return err
	}
	streams, err := net.Listen("tcp", fmt.Sprintf(":%d", *echoPort))
	if err != nil {
		return err
	}
	datagrams, err := net.ListenPacket("udp", fmt.Sprintf(":%d", *echoPort))
	if err != nil {
		return err
	}
	failed := make(chan error, 4)
	if len(ports) > 0 {
		go func() { failed <- open(ports) }()
	}
	go func() { failed <- http.Serve(web, http.HandlerFunc(describe)) }()
	go func() { failed <- echoStreams(streams) }()
	go func() { failed <- echoDatagrams(datagrams) }()
	fmt.Fprintln(out, "serving")
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

func parsePorts(text string) (ports []uint16, err error) {
	for word := range strings.SplitSeq(text, ",") {
		port, err := strconv.ParseUint(word, 10, 16)
		if err != nil {
			return nil, err
		}
		ports = append(ports, uint16(port))
	}
	return ports, nil
}

// describe writes the pod's name, the client, the requested host, and the local address of the connection.
func describe(w http.ResponseWriter, r *http.Request) {
	name, err := os.Hostname()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	client, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintf(w, "pod=%s client=%s host=%s reached=%v\n", name, client, r.Host,
		r.Context().Value(http.LocalAddrContextKey))
}

func echoStreams(listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn) // the client notices missing data
		}()
	}
}

func echoDatagrams(conn net.PacketConn) error {
	datagram := make([]byte, 65536)
	for {
		n, from, err := conn.ReadFrom(datagram)
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			continue // an ICMP error of an earlier reply
		}
		_, _ = conn.WriteTo(datagram[:n], from) // the client notices missing data
	}
}
