#!/bin/sh
# Prints the version of the sources in a directory (default: this repository), for programs, image and chart:
#   v1.2.3                                  the commit with this tag
#   v1.2.4-dev.5.gCOMMIT                    five commits after it; sorts between the releases
#   v0.1.0-dev.812.gCOMMIT                  no tag yet
#   v0.1.0-dev.812.gCOMMIT.dirty.DIGEST     with changes; the digest is that of all files
#   v0.1.0-dev.src.DIGEST                   not a checkout
# Two different sources never have the same version. It is a semantic version, and a valid tag of an image (no "+").
set -eu
cd "${1:-$(dirname "$0")/..}"
next=v0.1.0 # the first release

# An archive of the sources may be unpacked in the checkout of another repository.
if ! prefix=$(git rev-parse --show-prefix 2>/dev/null) || [ -n "$prefix" ] || ! commit=$(git rev-parse --short=12 HEAD 2>/dev/null); then
	digest=$(find . -type f ! -path './bin/*' ! -path './dist/*' ! -path './.git/*' -exec sha256sum {} + | LC_ALL=C sort | sha256sum | cut -c1-12)
	echo "$next-dev.src.$digest"
	exit
fi

dirty=
if [ -n "$(git status --porcelain)" ]; then
	# The digest is that of a tree with all files, by an index and objects that are removed afterwards.
	scratch=$(mktemp -d)
	trap 'rm -rf "$scratch"' EXIT
	objects=$(git rev-parse --path-format=absolute --git-path objects)
	cp "$(git rev-parse --git-path index)" "$scratch/index" 2>/dev/null || :
	mkdir "$scratch/objects"
	tree=$(export GIT_INDEX_FILE="$scratch/index" GIT_OBJECT_DIRECTORY="$scratch/objects" GIT_ALTERNATE_OBJECT_DIRECTORIES="$objects"
		git add -A && git write-tree)
	dirty=.dirty.$(echo "$tree" | cut -c1-12)
fi

described=$(git describe --tags --long --abbrev=12 --match 'v[0-9]*.[0-9]*.[0-9]*' 2>/dev/null || :) # TAG-COUNT-gCOMMIT
rest=${described%-g*}
tag=${rest%-*}
count=${rest##*-}
case $tag in
"") echo "$next-dev.$(git rev-list --count HEAD).g$commit$dirty" ;;
*)
	if [ "$count" = 0 ] && [ -z "$dirty" ]; then
		echo "$tag"
		exit
	fi
	case $tag in
	*-*) echo "$tag.dev.$count.g$commit$dirty" ;; # after v1.3.0-rc.1
	*) echo "${tag%.*}.$((${tag##*.} + 1))-dev.$count.g$commit$dirty" ;;
	esac
	;;
esac
