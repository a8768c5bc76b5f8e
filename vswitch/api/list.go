package api

import (
	"encoding/binary"

	"go.fd.io/govpp/api"
)

// list is the part of a message that its sender says the length of. The codec makes room for as many items as a 32-bit
// count says before it looks whether they are there: a message of a hundred bytes could ask for 100 GiB.
type list struct {
	count int // where in the message the count is, behind the header of a request
	item  int // the length of an item
}

// addList says where the list of a request is that was added before.
func (t *table) addList(m api.Message, l list) {
	r := t.requests[t.id(m)]
	r.list = l
	t.requests[t.id(m)] = r
}

// fits says that a request's items are all there.
func (l list) fits(data []byte) bool {
	if l.item == 0 {
		return true
	}
	at := requestHeader + l.count
	if len(data) < at+4 {
		return false
	}
	return uint64(binary.BigEndian.Uint32(data[at:]))*uint64(l.item) <= uint64(len(data)-at-4)
}
