package main

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
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
