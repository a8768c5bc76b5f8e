package devicemanager

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weftnet/weft/pod"
)

// counter is a source of bytes that does not repeat long sequences.
type counter struct{ n int }

func (c *counter) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(c.n*7 + i%(c.n+3))
		c.n++
	}
	return len(p), nil
}

// TestSecretIsNeverDisclosed: logs, events, errors, records and annotations do not contain it.
func TestSecretIsNeverDisclosed(t *testing.T) {
	n := newNode(t, func(n *node) { n.config.Rand = &counter{n: 1} })
	containers := n.admit(t, podOf("a", 1, 1))
	secrets := []string{containers[0].Envs["MEMIF_SECRET"], containers[1].Envs["MEMIF_SECRET"]}
	if len(secrets[0]) != secretLength || secrets[0] == secrets[1] {
		t.Fatalf("secrets %v", secrets)
	}
	ev, err := n.add(t.Context(), "a", "s1")
	if err != nil {
		t.Fatal(err)
	}
	_, failure := n.loop.Do(t.Context(), &pod.ReleaseDevice{Allocation: n.Allocations()[0].ID, Reason: "test"})
	n.delete(t, "s1")
	shown := &bytes.Buffer{}
	fmt.Fprintln(shown, n.log, failure, ev, fmt.Sprintf("%+v %#v", ev.Grants, ev.Grants), n.Stats(), n.Allocations())
	fmt.Fprintf(shown, "%+v %#v %v", n.saver.Bucket(bucket), n.stateFile(t), n.committer.Changes())
	for _, v := range []any{
		n.Allocations(), n.committer.Values(), n.saver.Records(), containers[0].Annotations, n.Stats(),
	} {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		shown.Write(raw)
	}
	for _, path := range n.leftovers(t) {
		if filepath.Base(path) == "secret" || mode(path)[0] == 'd' {
			continue
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		shown.Write(raw)
	}
	if len(n.saver.Records()) < 4 {
		t.Errorf("%d records checked", len(n.saver.Records()))
	}
	for _, s := range secrets {
		if at := strings.Index(shown.String(), s); at >= 0 {
			t.Errorf("the secret is disclosed: ...%s...", shown.String()[max(0, at-200):at])
		}
	}
}

func TestSecretsAndIDsAreUniformLettersAndDigits(t *testing.T) {
	const texts = 2000
	n := bareNode(t)
	count := make(map[rune]int)
	for range texts {
		s, err := n.factory.newSecret()
		if err != nil || !isRandomText(string(s), secretLength) {
			t.Fatalf("%q, %v", string(s), err)
		}
		for _, c := range string(s) {
			count[c]++
		}
	}
	mean := texts * secretLength / len(alphabet)
	for _, c := range alphabet {
		if count[c] < mean/2 || count[c] > mean*2 {
			t.Errorf("%c occurs %d times, the mean is %d", c, count[c], mean)
		}
	}
}

type source func([]byte) (int, error)

func (s source) Read(p []byte) (int, error) { return s(p) }

// TestAllocateFailsWhenRandomSourceIsBroken or repeats itself: a predictable secret is worse than no device.
func TestAllocateFailsWhenRandomSourceIsBroken(t *testing.T) {
	for name, from := range map[string]source{
		"it fails":          func([]byte) (int, error) { return 0, errors.New("no entropy") },
		"it repeats itself": func(p []byte) (int, error) { clear(p); return len(p), nil },
		"it returns unusable bytes": func(p []byte) (int, error) {
			copy(p, bytes.Repeat([]byte{255}, len(p)))
			return len(p), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, func(n *node) { n.config.Rand = from })
			_, _ = n.kubelet.Admit(t.Context(), pod.Resource, podOf("a", 1)) // the first secret may be unique
			had := len(n.Allocations())
			if _, err := n.kubelet.Admit(t.Context(), pod.Resource, podOf("b", 1)); err == nil ||
				len(n.Allocations()) != had {
				t.Errorf("allocated: %+v", n.Allocations())
			}
			if left := n.leftovers(t); len(left) != 4*had {
				t.Errorf("left: %v", left)
			}
		})
	}
}
