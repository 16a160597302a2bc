// Renders a chart with what Helm renders it with: Go's text/template, the functions of sprig, and the few that Helm adds. It is
// less than Helm: no dependencies, no library charts, no hooks, nothing looked up in a cluster.
//
//	render CHART NAMESPACE VALUES.yaml...
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"gopkg.in/yaml.v3"
)

type values = map[string]interface{}

type files struct{ chart string }

// Get is empty for a file that is not there, as in Helm.
func (f files) Get(name string) string {
	text, _ := os.ReadFile(filepath.Join(f.chart, name))
	return string(text)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func load(path string) values {
	text, err := os.ReadFile(path)
	must(err)
	read := values{}
	must(yaml.Unmarshal(text, &read))
	return read
}

// merge puts what is in from over what is in into, mapping by mapping.
func merge(into, from values) {
	for key, value := range from {
		below, isMapping := value.(values)
		under, hadMapping := into[key].(values)
		if isMapping && hadMapping {
			merge(under, below)
		} else {
			into[key] = value
		}
	}
}

func main() {
	chart, namespace := os.Args[1], os.Args[2]
	all := load(filepath.Join(chart, "values.yaml"))
	for _, path := range os.Args[3:] {
		merge(all, load(path))
	}
	paths, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	must(err)
	root := template.New("chart").Option("missingkey=zero")
	root.Funcs(sprig.TxtFuncMap()).Funcs(template.FuncMap{
		"toYaml": func(value interface{}) string {
			text, err := yaml.Marshal(value)
			must(err)
			return strings.TrimSuffix(string(text), "\n")
		},
		"include": func(name string, data interface{}) (string, error) {
			var out bytes.Buffer
			err := root.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
	})
	name := load(filepath.Join(chart, "Chart.yaml"))["name"].(string)
	base := name + "/templates"
	for _, path := range paths {
		text, err := os.ReadFile(path)
		must(err)
		_, err = root.New(base + "/" + filepath.Base(path)).Parse(string(text))
		must(err)
	}
	data := values{
		"Values":   all,
		"Release":  values{"Name": name, "Namespace": namespace},
		"Chart":    load(filepath.Join(chart, "Chart.yaml")),
		"Template": values{"BasePath": base},
		"Files":    files{chart},
	}
	for _, path := range paths {
		// Definitions for the others.
		if strings.HasPrefix(filepath.Base(path), "_") {
			continue
		}
		fmt.Printf("---\n# Source: %s\n", filepath.Base(path))
		if filepath.Ext(path) == ".txt" {
			// Notes are for people.
			must(root.ExecuteTemplate(os.Stderr, base+"/"+filepath.Base(path), data))
			continue
		}
		must(root.ExecuteTemplate(os.Stdout, base+"/"+filepath.Base(path), data))
		fmt.Println()
	}
}
