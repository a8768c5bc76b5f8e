package ctl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weftnet/weft/ctl"
	"github.com/weftnet/weft/ctl/ctltest"
	"github.com/weftnet/weft/proto/document/documenttest"
)

// withoutDocuments are the commands that print no JSON documents, with the reason.
var withoutDocuments = map[string]string{
	"dataplane":        "prints its help",
	"install":          "prints manifests, or the output of kubectl",
	"plan":             "prints its help",
	"probe interfaces": "prints JSON for weftctl check, of the same version",
	"probe send":       "prints JSON for weftctl check, of the same version",
	"probe serve":      "prints no document",
	"probe tap":        "prints no document",
	"quarantine":       "prints its help",
	"schema":           "prints a JSON Schema, which has its own one",
	"ui":               "prints an address",
	"upgrade":          "prints its help",
}

// checkedMain is ctl.Main. Its error says that the output has a document that does not follow the schema of the
// command.
func checkedMain(ctx context.Context, env ctl.Env, args []string) (code int, err error) {
	var printed bytes.Buffer
	env.Out = io.MultiWriter(env.Out, &printed)
	code = ctl.Main(ctx, env, args)
	return code, followsSchema(env.Plugin, args, printed.Bytes())
}

func followsSchema(plugin bool, args []string, printed []byte) error {
	schema := ctl.SchemaOfOutput(plugin, args)
	if schema == nil {
		return nil
	}
	if _, err := documenttest.Validate(schema, printed); err != nil {
		return fmt.Errorf("weftctl %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// printSchema runs weftctl schema.
func printSchema(t *testing.T, arguments string) (schema map[string]any, messages string, code int) {
	t.Helper()
	var out, failures bytes.Buffer
	code = ctl.Main(t.Context(), ctl.Env{Out: &out, Err: &failures},
		append([]string{"schema"}, strings.Fields(arguments)...))
	if err := json.Unmarshal(out.Bytes(), &schema); code == 0 && err != nil {
		t.Errorf("schema %s: %v", arguments, err)
	}
	return schema, failures.String(), code
}

func TestEachCommandHasASchemaOrPrintsNoDocuments(t *testing.T) {
	paths := ctl.CommandPaths()
	schemas := 0
	for _, path := range paths {
		_, isWithout := withoutDocuments[path]
		schema, messages, code := printSchema(t, path)
		switch {
		case isWithout && (code != 2 || !strings.Contains(messages, "prints no JSON documents")):
			t.Errorf("%s has a schema, and is in withoutDocuments (exit code %d, %s)", path, code, messages)
		case !isWithout && code != 0:
			t.Errorf("%s: add it to documentTypes (schema.go), or here with a reason: %s", path, messages)
		case !isWithout:
			schemas++
			if _, err := documenttest.Validate(schema, nil); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			if _, err := documenttest.Validate(schema, []byte(`"no document"`)); err == nil {
				t.Errorf("the schema of %s permits a text", path)
			}
		}
	}
	if schemas != len(paths)-len(withoutDocuments) || schemas < 35 {
		t.Errorf("%d commands have a schema, %d are without documents, of %d", schemas, len(withoutDocuments),
			len(paths))
	}
}

// withEmptyReplies are the replies of an agent that answers all requests.
func withEmptyReplies() ctltest.Replies {
	replies := ctltest.Sample(now)
	replies.Empty = true
	return replies
}

// Each command prints a document, with the schema that weftctl prints for it.
func TestDocumentsOfCommandsFollowTheirSchemas(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	_, stop, err := ctltest.Serve(socket, withEmptyReplies())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for _, command := range commandLines(t, documents, documentsOnly) {
		var out bytes.Buffer
		env := ctl.Env{Out: &out, Err: io.Discard}
		ctl.Main(t.Context(), env, append(strings.Fields(command.text), "-o", "json", "--socket", socket))
		schema, _, _ := printSchema(t, command.path)
		if n, err := documenttest.Validate(schema, out.Bytes()); err != nil || n == 0 {
			t.Errorf("%s prints %d documents: %v", command.text, n, err)
		}
		if n, err := documenttest.Validate(schema, []byte(`{"zzz": 1}`)); err == nil && command.path != "settings" {
			t.Errorf("the schema of %s permits any of %d documents", command.text, n)
		}
	}
}

func TestAnswersOfSeveralNodesFollowTheirSchemas(t *testing.T) {
	a := newRealAgents(t, withEmptyReplies(), "n1", "n2")
	for _, command := range commandLines(t, documents, documentsOnly) {
		out, messages, _ := a.run(false, append(strings.Fields(command.text), "--all-nodes", "-o", "json")...)
		schema, _, code := printSchema(t, command.path+" --all-nodes")
		isAnswered := strings.Contains(out, `"output":`) || command.path == "status"
		if n, err := documenttest.Validate(schema, []byte(out)); err != nil || !isAnswered || code != 0 {
			t.Errorf("%s prints %d documents (%s): %v\n%s", command.text, n, messages, err, out)
		}
	}
}

func TestSchemasThatDoNotExist(t *testing.T) {
	for arguments, want := range map[string]string{
		"":                    "schema: requires at least 1 arg(s), only received 0",
		"statsu":              `unknown command "statsu"; did you mean "status"?`,
		"status more":         "unknown command",
		"install":             "schema: weftctl install prints no JSON documents",
		"bundle --all-nodes":  "schema: weftctl bundle runs on one node at a time",
		"profile --all-nodes": "schema: weftctl profile runs on one node at a time",
	} {
		if _, messages, code := printSchema(t, arguments); code != 2 || !strings.Contains(messages, want) {
			t.Errorf("schema %s: exit code %d, %s", arguments, code, messages)
		}
	}
}

// A document with a fault is found, so the tests above can fail.
func TestOutputThatDoesNotFollowTheSchemaIsFound(t *testing.T) {
	for _, args := range []string{"status -o json", "events -o json", "devices --all-nodes -o json"} {
		if followsSchema(false, strings.Fields(args), []byte(`{"zzz": 1}`)) == nil {
			t.Errorf("%s: any document is accepted", args)
		}
	}
	if err := followsSchema(false, []string{"status"}, []byte("a table")); err != nil {
		t.Error(err)
	}
}

// Commands of which the other tests read no document.
func TestReportsFollowTheirSchemas(t *testing.T) {
	t.Chdir(t.TempDir())
	for command, want := range map[string]string{
		"upgrade check -o json":              `"interrupts": [`,
		"bundle --write a.tar.gz -o json":    `"file": "a.tar.gz"`,
		"capture default/a eth0 -o json":     `"length":42`,
		"capture default/a eth0 -w b -ojson": `"packets": 2`,
	} {
		if got, _, _ := answer(t, withEmptyReplies(), strings.Fields(command)...); !strings.Contains(got, want) {
			t.Errorf("%s prints no %s: %s", command, want, got)
		}
	}
	out, messages, code := newKubelets(t, "n1", "n2").check(t.Context(), "-o", "json")
	if code != 0 || !strings.Contains(out, `"failed": 0`) {
		t.Errorf("check: exit code %d, %s%s", code, out, messages)
	}
}
