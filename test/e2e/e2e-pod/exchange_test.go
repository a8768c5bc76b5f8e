package main

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// freePort is a port that nobody uses, for TCP and UDP alike as far as that can be said.
func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

func TestEchoComesBackOverEachTransport(t *testing.T) {
	for name, pair := range map[string]struct {
		server func(port int) error
		client command
	}{"streams": {echoStreams, tcp}, "datagrams": {echoDatagrams, udp}} {
		t.Run(name, func(t *testing.T) {
			port := freePort(t)
			ended := make(chan error, 1)
			go func() { ended <- pair.server(port) }() // it serves until the test program ends
			address := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}).String()
			deadline := time.Now().Add(10 * time.Second)
			for {
				var out bytes.Buffer
				err := pair.client(&out, []string{address, "some text"})
				if err == nil && out.String() == "some text\n" {
					return
				}
				select {
				case err := <-ended:
					t.Fatal("the server ended:", err)
				default:
				}
				if time.Now().After(deadline) {
					t.Fatalf("got %q, %v", out.String(), err)
				}
			}
		})
	}
}

func TestThePageNamesTheClient(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(describe))
	defer server.Close()
	var out bytes.Buffer
	if err := fetch(&out, []string{server.URL}); err != nil || !strings.Contains(out.String(), " client=127.0.0.1 ") {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

func TestAnErrorOfTheServerIsOneOfTheClient(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	if err := fetch(new(bytes.Buffer), []string{server.URL}); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("got %v", err)
	}
}
