package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestEachTransportEchoes(t *testing.T) {
	streams, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer streams.Close()
	datagrams, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	go func() { _ = echoStreams(streams) }()
	go func() { _ = echoDatagrams(datagrams) }()
	for address, client := range map[net.Addr]command{streams.Addr(): tcp, datagrams.LocalAddr(): udp} {
		var out bytes.Buffer
		if err := client(&out, []string{address.String(), "some text"}); err != nil || out.String() != "some text\n" {
			t.Errorf("%s: got %q, %v", address.Network(), out.String(), err)
		}
	}
}

func TestConcurrentPagesArePrinted(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(describe))
	defer server.Close()
	var out bytes.Buffer
	if err := fetch(&out, []string{server.URL, "20"}); err != nil ||
		strings.Count(out.String(), " client=127.0.0.1 ") != 20 {
		t.Errorf("got %q, %v", out.String(), err)
	}
	server.Close()
	if err := fetch(&out, []string{server.URL, "20"}); err == nil {
		t.Error("no error without a server")
	}
}

func TestPageHasTheClient(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(describe))
	defer server.Close()
	var out bytes.Buffer
	if err := fetch(&out, []string{server.URL}); err != nil || !strings.Contains(out.String(), " client=127.0.0.1 ") {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

func TestFetchFailsOnAnErrorStatus(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	if err := fetch(new(bytes.Buffer), []string{server.URL}); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("got %v", err)
	}
}

func TestKnockTellsOpenSilentAndRefusedPorts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("raw sockets need root")
	}
	const (
		served = 40080
		other  = 40081
	)
	go func() { _ = open([]uint16{served}) }()
	sink, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", other)) // no answer
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	want := []string{
		"tcp/127.0.0.1:40080 open", "udp/127.0.0.1:40080 open", "sctp/127.0.0.1:40080 open", "sctp/[::1]:40080 open",
		"udp/127.0.0.1:40081 silent",
		"sctp/127.0.0.1:40081 silent", "tcp/127.0.0.1:40081 dial tcp 127.0.0.1:40081: connect: connection refused",
	}
	var targets []string
	for _, line := range want {
		targets = append(targets, strings.Fields(line)[0])
	}
	got := ""
	for range 50 { // until it serves
		var out bytes.Buffer
		if err := knock(&out, targets); err != nil {
			t.Fatal(err)
		}
		if got = out.String(); got == strings.Join(want, "\n")+"\n" {
			return
		}
	}
	t.Errorf("got:\n%s", got)
}

// The server drops the first datagrams of a burst, as a full queue does.
func TestPatientKnockRepeatsLostDatagrams(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	const (
		lost     = 5
		contacts = 8
	)
	go func() {
		packet := make([]byte, 100)
		for received := 0; ; received++ {
			n, from, err := server.ReadFrom(packet)
			if err != nil {
				return
			}
			if received >= lost {
				_, _ = server.WriteTo(packet[:n], from) // the client may be gone
			}
		}
	}()
	target := "udp/" + server.LocalAddr().String()
	var out bytes.Buffer
	if err := knock(&out, append([]string{"-patient"}, slices.Repeat([]string{target}, contacts)...)); err != nil {
		t.Fatal(err)
	}
	if want := strings.Repeat(target+" open\n", contacts); out.String() != want {
		t.Errorf("got:\n%s", out.String())
	}
}
