package failures_test

import (
	"archive/tar"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
)

// The archive of a node with a memif has neither its secret nor the token for the API server, in any usual encoding.
func TestBundleHasNoSecrets(t *testing.T) {
	s := newScene(t, node.Options{Memifs: 1})
	s.start("--log-level=debug")
	p := s.pod("a", "m0/memif")
	containers, err := s.Admit(t.Context(), p, kubelettest.Container{Name: "vnf", Limit: 1})
	must.Succeed(t, err)
	s.add(p, false)
	secret := containers[0].Envs[memif.SecretVariable]
	files := s.bundle()
	if len(secret) < 7 || !strings.Contains(files["objects.json"], "secret") {
		t.Errorf("the secret has %d bytes, the objects do not mention it: the search proves nothing", len(secret))
	}
	for _, name := range []string{
		"state.json", "settings.yaml", "attachments.json", "events.json", "transactions.json", "devices.json",
		"agent.log", "machine.txt",
	} {
		if len(files[name]) < 20 {
			t.Errorf("%s has %q", name, files[name])
		}
	}
	absent(t, files, secret)
}

func TestBundleHasNoTokenOfTheAPIServer(t *testing.T) {
	s := newScene(t, node.Options{})
	disconnectServer(s, false)
	absent(t, s.bundle(), token)
}

// bundle runs weftctl bundle and returns the files of the archive.
func (s *scene) bundle() map[string]string {
	s.Helper()
	path := filepath.Join(s.TempDir(), "b.tar.gz")
	_, err := s.Weftctl(s.Context(), "bundle", "--write", path)
	must.Succeed(s.T, err)
	f, err := os.Open(path)
	must.Succeed(s.T, err)
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		s.Errorf("mode %v, %v", info.Mode(), err)
	}
	zipped, err := gzip.NewReader(f)
	must.Succeed(s.T, err)
	files := map[string]string{}
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must.Succeed(s.T, err)
		content, err := io.ReadAll(archive)
		must.Succeed(s.T, err)
		files[strings.TrimPrefix(header.Name, "weft-bundle/")] = string(content)
	}
}

// absent reports files with the start of a secret: plain, hexadecimal, or base64 in each of the three alignments.
func absent(t *testing.T, files map[string]string, secret string) {
	t.Helper()
	part := secret[:min(7, len(secret))]
	forms := []string{part, hex.EncodeToString([]byte(part))}
	for _, before := range []string{"", "x", "xx"} {
		whole := len(before+part) / 3 * 3
		forms = append(forms, base64.StdEncoding.EncodeToString([]byte(before + part)[:whole])[(len(before)*4+2)/3:])
	}
	for name, content := range files {
		for _, form := range forms {
			if strings.Contains(content, form) {
				t.Errorf("%s has a secret as %q", name, form)
			}
		}
	}
}
