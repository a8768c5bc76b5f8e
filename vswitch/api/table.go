package api

import (
	"cmp"
	"reflect"
	"slices"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/memclnt"
)

// fixedIDs are the numbers that memclnt.api has in every VPP; a client knows sockclnt_create's by heart.
var fixedIDs = map[string]uint16{
	"api_versions": 12, "api_versions_reply": 13,
	"sockclnt_create": 15, "sockclnt_create_reply": 16,
	"sockclnt_delete": 17, "sockclnt_delete_reply": 18,
	"memclnt_keepalive": 21, "memclnt_keepalive_reply": 22,
	"control_ping": 23, "control_ping_reply": 24,
}

// firstFreeID is the first number that memclnt.api leaves to others.
const firstFreeID = 29

// table numbers the messages that this server can receive or send, and nothing else:
// what it does not list does not exist for a client, which then fails at once instead of waiting.
type table struct {
	ids      map[string]uint16 // name_crc -> number
	requests map[uint16]request
	next     uint16
}

// request is a message that clients may send.
type request struct {
	message reflect.Type // the struct, not the pointer
	answer  answerFunc
	list    list
}

// answerFunc answers one request by any number of messages given to send.
// An error means that the peer is beyond help: its connection is closed.
type answerFunc func(c *client, req api.Message, send func(api.Message) error) error

func newTable() *table {
	return &table{ids: map[string]uint16{}, requests: map[uint16]request{}, next: firstFreeID}
}

// add numbers m, once.
func (t *table) add(m api.Message) uint16 {
	key := messageKey(m)
	if id, ok := t.ids[key]; ok {
		return id
	}
	id, ok := fixedIDs[m.GetMessageName()]
	if !ok {
		id = t.next
		t.next++
	}
	t.ids[key] = id
	return id
}

// addRequest numbers m and says who answers it.
func (t *table) addRequest(m api.Message, answer answerFunc) {
	t.requests[t.add(m)] = request{message: reflect.TypeOf(m).Elem(), answer: answer}
}

// id is the number of m, which was added before.
func (t *table) id(m api.Message) uint16 { return t.ids[messageKey(m)] }

// entries are what sockclnt_create's reply tells the client, highest number first: govpp takes the last name that
// begins with "sockclnt_delete_" for the request, and the reply's, with the higher number, begins so too.
func (t *table) entries() []memclnt.MessageTableEntry {
	list := make([]memclnt.MessageTableEntry, 0, len(t.ids))
	for key, id := range t.ids {
		list = append(list, memclnt.MessageTableEntry{Index: id, Name: key})
	}
	slices.SortFunc(list, func(a, b memclnt.MessageTableEntry) int { return cmp.Compare(b.Index, a.Index) })
	return list
}

// messageKey is a message's name in the table: the number behind it, made from the message's definition, keeps
// client and server from meaning different messages by one name.
func messageKey(m api.Message) string { return m.GetMessageName() + "_" + m.GetCrcString() }
