package api

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"
)

// rawClient sends and receives encoded messages.
type rawClient struct {
	net.Conn
	r     *bufio.Reader
	index uint32
}

func (r testServer) dial(t testing.TB) *rawClient {
	t.Helper()
	conn, err := net.Dial("unix", r.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &rawClient{Conn: conn, r: bufio.NewReader(conn)}
}

// register connects and sends sockclnt_create.
func (r testServer) register(t testing.TB) *rawClient {
	t.Helper()
	c := r.dial(t)
	c.sendFrame(t, must(codec.EncodeMsg(&memclnt.SockclntCreate{Name: "raw"}, 15)))
	reply := &memclnt.SockclntCreateReply{}
	if err := codec.DecodeMsg(c.receive(t), reply); err != nil {
		t.Fatal(err)
	}
	c.index = reply.Index
	return c
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func (c *rawClient) sendFrame(t testing.TB, data []byte) {
	t.Helper()
	if _, err := c.Write(appendFrame(nil, data)); err != nil {
		t.Fatal(err)
	}
}

func (c *rawClient) receive(t testing.TB) []byte {
	t.Helper()
	data, err := readFrame(c.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// request encodes a request.
func (c *rawClient) request(s *Server, m api.Message, context uint32) []byte {
	data := must(codec.EncodeMsg(m, s.table.id(m)))
	binary.BigEndian.PutUint32(data[2:], c.index)
	binary.BigEndian.PutUint32(data[6:], context)
	return data
}

// closed reports whether the server closes the connection without sending more.
func (c *rawClient) closed() bool {
	n, err := io.Copy(io.Discard, c.r)
	return n == 0 && (err == nil || errors.Is(err, syscall.ECONNRESET))
}

// answers reports whether the server answers a control_ping.
func (c *rawClient) answers(t testing.TB, s *Server) bool {
	t.Helper()
	if _, err := c.Write(appendFrame(nil, c.request(s, &memclnt.ControlPing{}, 77))); err != nil {
		return false
	}
	for {
		data, err := readFrame(c.r, nil)
		if err != nil {
			return false
		}
		if binary.BigEndian.Uint16(data) == s.table.id(&memclnt.ControlPingReply{}) &&
			binary.BigEndian.Uint32(data[2:]) == 77 {
			return true
		}
	}
}
