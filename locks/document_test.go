package locks

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
)

var rewriteDocuments = flag.Bool("rewrite-documents", false, "rewrite testdata/documents")

// documents are the types whose JSON documents other programs read.
var documents = map[string]reflect.Type{
	"report":         reflect.TypeFor[Report](),
	"local-keys":     reflect.TypeFor[LocalKeys](),
	"local-sessions": reflect.TypeFor[LocalSessions](),
	"local-shards":   reflect.TypeFor[LocalShards](),
	"local-names":    reflect.TypeFor[LocalNames](),
}

// fill gives every field of v a value that is not zero, the same at each run.
func fill(v reflect.Value, n *int, name string) {
	*n++
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		*x = time.Date(2026, 1, 2, 3, 4, *n%60, 0, time.UTC)
		return
	case *time.Duration:
		*x = time.Duration(*n) * time.Millisecond
		return
	case *cluster.Duration:
		*x = cluster.Duration(time.Duration(*n) * time.Millisecond)
		return
	case *Mode:
		*x = Mode(*n % 3)
		return
	case *Reason:
		*x = Reason(*n%9 + 1)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
				fill(v.Field(i), n, f.Name)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n, name)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n, name)
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"region": "eu"}))
	case reflect.String:
		v.SetString(fmt.Sprintf("%s-%d", strings.ToLower(name), *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int:
		v.SetInt(int64(*n))
	case reflect.Uint64:
		v.SetUint(1<<53 + uint64(*n)) // no reader may round it
	default:
		panic("a document cannot have a " + v.Type().String())
	}
}

// TestDocumentsAreGolden: the names and the forms of all fields stay, and each document
// decodes into the value it was made of. Run with -rewrite-documents after a change.
func TestDocumentsAreGolden(t *testing.T) {
	for name, of := range documents {
		v, n := reflect.New(of), 0
		fill(v.Elem(), &n, name)
		text, err := json.MarshalIndent(v.Interface(), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, '\n')
		file := filepath.Join("testdata", "documents", name+".json")
		if *rewriteDocuments {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(text, want) {
			t.Errorf("%s is not as in %s: other programs read it. Is the change meant?\n%s", name, file, text)
		}
		back := reflect.New(of)
		if err := json.Unmarshal(want, back.Interface()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(back.Interface(), v.Interface()) {
			t.Errorf("%s is decoded as\n%+v, want\n%+v", name, back.Elem(), v.Elem())
		}
		// Without a value for anything the lists are there, and no list is null.
		text, err = json.Marshal(reflect.New(of).Interface())
		if err != nil || !json.Valid(text) {
			t.Errorf("an empty %s: %v", name, err)
		}
	}
}

// TestDocumentsAreExplained: docs/report.md has a table for each type in the documents, with
// each field, and with no other.
func TestDocumentsAreExplained(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	heading := regexp.MustCompile("^### `([a-z]+\\.[A-Za-z]+)`")
	row := regexp.MustCompile("^\\| `([A-Za-z0-9]+)` \\| (.+) \\|$")
	told := make(map[string][]string)
	in := ""
	for _, line := range strings.Split(string(text), "\n") {
		if m := heading.FindStringSubmatch(line); m != nil {
			in = m[1]
		} else if m := row.FindStringSubmatch(line); m != nil {
			told[in] = append(told[in], m[1])
		}
	}
	has := make(map[string][]string)
	var list func(of reflect.Type)
	list = func(of reflect.Type) {
		switch of.Kind() {
		case reflect.Slice, reflect.Pointer:
			list(of.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		name := of.String()
		if _, done := has[name]; done || of == reflect.TypeFor[time.Time]() {
			return
		}
		has[name] = []string{}
		for i := range of.NumField() {
			f := of.Field(i)
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case f.Anonymous:
				list(f.Type)
			case !f.IsExported() || tag == "-":
			case tag == "":
				t.Errorf("%s.%s has no name in JSON", name, f.Name)
			default:
				has[name] = append(has[name], tag)
				list(f.Type)
			}
		}
	}
	for _, of := range documents {
		list(of)
	}
	for name, fields := range has {
		if !slices.Equal(fields, told[name]) {
			t.Errorf("docs/report.md has of %s\n%q, want\n%q", name, told[name], fields)
		}
		delete(told, name)
	}
	for name := range told {
		t.Errorf("docs/report.md explains %s, which is in no document", name)
	}
}
