package uplink

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// FuzzHeldCard reads the file of a network card. An accepted card names the file that it was read from.
func FuzzHeldCard(f *testing.F) {
	f.Add([]byte(`{"boot":"b","card":{"link":"eth0","addresses":["10.0.0.1/24"]},"to":"weft-uplink"}`))
	f.Add([]byte(`{"boot":"b","card":{"link":"../x"}}`))
	f.Add([]byte("null"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := os.WriteFile(filepath.Join(dir, "card-eth0.json"), raw, 0o600); err != nil {
			t.Fatal(err)
		}
		cards, err := readHeldCards(dir, "b")
		if err != nil && len(cards) > 0 {
			t.Errorf("%d cards with an error", len(cards))
		}
		for _, c := range cards {
			if !json.Valid(raw) || c.file(dir) != filepath.Join(dir, "card-eth0.json") {
				t.Errorf("%q is accepted as the card of %q", raw, c.file(dir))
			}
		}
	})
}
