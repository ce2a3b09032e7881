// Package config reads Laneway's settings: defaults, then one YAML file, then
// LANEWAY_ environment variables, then flags, each over the one before
// (design 9).
//
// It owns the names, defaults and limits of all settings. Nothing is guessed:
// an unknown key, a value of the wrong kind or one outside its limits is an
// error that names the key, where it came from and what to do.
package config
