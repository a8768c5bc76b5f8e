package api

import (
	"encoding/binary"
	"maps"
	"slices"
	"testing"

	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"
	"pgregory.net/rapid"
)

// requestIDs returns the ids of all requests but sockclnt_delete.
func requestIDs(s *Server) []uint16 {
	ids := slices.Sorted(maps.Keys(s.table.requests))
	return slices.DeleteFunc(ids, func(id uint16) bool { return id == s.table.id(&memclnt.SockclntDelete{}) })
}

// emptySize is the length of a message with zero fields.
func emptySize(s *Server, id uint16) int {
	return len(must(codec.EncodeMsg(s.table.requests[id].newRequest(), id)))
}

// survives sends a message with the given fields. It reports whether the server then answers on this connection or,
// after it has closed this one, on a new one.
func (r testServer) survives(t testing.TB, id uint16, fields []byte) bool {
	t.Helper()
	c := r.register(t)
	defer c.Close()
	data := make([]byte, max(requestHeader+len(fields), emptySize(r.Server, id)))
	copy(data[requestHeader:], fields)
	binary.BigEndian.PutUint16(data, id)
	binary.BigEndian.PutUint32(data[2:], c.index)
	if len(data) > maxMessage {
		return true
	}
	c.sendFrame(t, data)
	return c.answers(t, r.Server) || r.register(t).answers(t, r.Server)
}

func FuzzMessages(f *testing.F) {
	r := start(f, Limits{Clients: 1000})
	ids := requestIDs(r.Server)
	for n := range ids {
		f.Add(uint16(n), []byte{})
		f.Add(uint16(n), slices.Repeat([]byte{0xff}, 300))
		f.Add(uint16(n), slices.Repeat([]byte{0, 0, 0, 1}, 60))
	}
	f.Fuzz(func(t *testing.T, n uint16, fields []byte) {
		if !r.survives(t, ids[int(n)%len(ids)], fields) {
			t.Fatal("the server does not answer")
		}
	})
}

func TestServerSurvivesArbitraryFields(t *testing.T) {
	r := start(t, Limits{Clients: 1000})
	edge := rapid.SampledFrom([]byte{0, 0, 0, 1, 2, 8, 24, 32, 64, 128, 0xfe, 0xff})
	for _, id := range requestIDs(r.Server) {
		name := r.table.requests[id].newRequest().GetMessageName()
		t.Run(name, func(t *testing.T) {
			c := r.register(t)
			size := emptySize(r.Server, id) - requestHeader
			rapid.Check(t, func(rt *rapid.T) {
				fields := rapid.SliceOfN(edge, size, size+400).Draw(rt, "fields")
				data := binary.BigEndian.AppendUint16(nil, id)
				data = binary.BigEndian.AppendUint32(data, c.index)
				data = append(binary.BigEndian.AppendUint32(data, 1), fields...)
				c.sendFrame(t, data)
				if c.answers(t, r.Server) {
					return
				}
				// The server may close the connection on inconsistent fields.
				if c = r.register(t); !c.answers(t, r.Server) {
					rt.Fatalf("the server does not answer")
				}
			})
		})
	}
}
