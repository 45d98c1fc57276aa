#!/usr/bin/env bash
# Makes tests/data/video/: small files in the containers, codecs, pixel formats and clocks that people
# have. Needs the ffmpeg tool (5.1 made what is committed) and python3.
# Usage: scripts/make_video_fixtures.sh [DIR]
#
# Every picture shows the same card, 64 x 48: quarters of (200,60,50) (50,180,70) / (60,80,200)
# (220,200,60), and in the middle a gray patch of 24 x 16 that says which frame it is: 24 + 12 i.
# tests/data/test_wild.cpp looks at the middles of the five.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(realpath -m -- "${1:-tests/data/video}")
mkdir -p "$dir"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

card() {  # card FILE FRAMES [WIDTH HEIGHT]
    python3 - "$@" <<'PY'
import sys
n, w, h = int(sys.argv[2]), *(int(v) for v in (sys.argv[3:5] or (64, 48)))
quarters = (((200, 60, 50), (50, 180, 70)), ((60, 80, 200), (220, 200, 60)))
with open(sys.argv[1], "wb") as out:
    for i in range(n):
        for y in range(h):
            for x in range(w):
                inside = abs(2 * x + 1 - w) < w * 3 / 8 and abs(2 * y + 1 - h) < h / 3
                out.write(bytes((24 + 12 * i,) * 3 if inside else quarters[2 * y >= h][2 * x >= w]))
PY
}
card card.rgb 12
card one.rgb 1
card odd.rgb 3 67 35
card sif.rgb 6 176 144
card hd.rgb 2 1280 720
ff() { ffmpeg -nostdin -hide_banner -loglevel error -y "$@"; }
raw() { printf '%s\n' -f rawvideo -pix_fmt rgb24 -s "${2:-64x48}" -framerate 10 -i "$1"; }
# make NAME ENCODER-OPTIONS...: 12 frames at 10 fps
make() {
    local name=$1
    shift
    ff $(raw card.rgb) -map_metadata -1 -fflags +bitexact -flags +bitexact "$@" "$dir/$name"
}
x264=(-c:v libx264 -crf 8 -preset slow -x264-params "keyint=6")
sd=(-vf scale=out_color_matrix=bt601:out_range=tv)

# containers and codecs
make h264.mp4 "${x264[@]}" -pix_fmt yuv420p "${sd[@]}"
make h264.mkv "${x264[@]}" -pix_fmt yuv420p "${sd[@]}"
make h264.ts "${x264[@]}" -pix_fmt yuv420p "${sd[@]}"
make h264.flv "${x264[@]}" -pix_fmt yuv420p "${sd[@]}"
make raw.h264 "${x264[@]}" -bf 0 -pix_fmt yuv420p "${sd[@]}"          # no time stamps at all
make hevc.mov -c:v libx265 -x265-params log-level=none:crf=8 -tag:v hvc1 -pix_fmt yuv420p "${sd[@]}"
make vp8.webm -c:v libvpx -crf 4 -b:v 1M -pix_fmt yuv420p "${sd[@]}"
make vp9.webm -c:v libvpx-vp9 -crf 8 -b:v 0 -pix_fmt yuv420p "${sd[@]}"
make av1.webm -c:v libaom-av1 -crf 8 -cpu-used 6 -pix_fmt yuv420p "${sd[@]}"
make mpeg1.mpg -c:v mpeg1video -r 25 -q:v 2 "${sd[@]}"
make mpeg2.vob -c:v mpeg2video -r 25 -q:v 2 "${sd[@]}"
make mpeg4.avi -c:v mpeg4 -bf 2 -q:v 2 "${sd[@]}"
make wmv2.wmv -c:v wmv2 -q:v 2 "${sd[@]}"
make theora.ogv -c:v libtheora -q:v 10 "${sd[@]}"
make mjpeg.avi -c:v mjpeg -q:v 2 -pix_fmt yuvj420p
make ffv1.nut -c:v ffv1 -pix_fmt bgr0
make animated.gif -vf "split[a][b];[a]palettegen=stats_mode=full[p];[b][p]paletteuse=dither=none"
make animated.apng -plays 0 -c:v apng
make animated.webp -c:v libwebp_anim -lossless 1 -loop 0
ff $(raw sif.rgb 176x144) -fflags +bitexact -flags +bitexact -c:v h263 -q:v 2 "${sd[@]}" "$dir/h263.3gp"

# pixels
make full.mp4 "${x264[@]}" -pix_fmt yuv420p -vf scale=out_color_matrix=bt601:out_range=pc \
    -color_range pc
make bt709.mp4 "${x264[@]}" -pix_fmt yuv420p -vf scale=out_color_matrix=bt709:out_range=tv \
    -colorspace bt709
make bt2020.mp4 "${x264[@]}" -pix_fmt yuv420p10le -vf scale=out_color_matrix=bt2020:out_range=tv \
    -colorspace bt2020nc
make p444.mp4 "${x264[@]}" -pix_fmt yuv444p "${sd[@]}"
make p422p10.mp4 "${x264[@]}" -pix_fmt yuv422p10le "${sd[@]}"
make p420p10.mkv -c:v libx265 -x265-params log-level=none:crf=8 -pix_fmt yuv420p10le "${sd[@]}"
make gbrp.mkv -c:v libx264rgb -crf 8 -pix_fmt rgb24
make gray.mkv "${x264[@]}" -pix_fmt gray -vf format=gray
make alpha.webm -vf "format=rgba,geq=r='r(X,Y)':g='g(X,Y)':b='b(X,Y)':a='if(lt(X,32),255,0)',scale=out_color_matrix=bt601:out_range=tv" \
    -c:v libvpx-vp9 -crf 8 -b:v 0 -pix_fmt yuva420p
ff $(raw odd.rgb 67x35) -fflags +bitexact -flags +bitexact -c:v ffv1 -pix_fmt yuv420p "${sd[@]}" "$dir/odd.mkv"
ff $(raw hd.rgb 1280x720) -fflags +bitexact -flags +bitexact "${x264[@]}" -pix_fmt yuv420p \
    -vf scale=out_color_matrix=bt709:out_range=tv "$dir/hd.mp4"        # says no matrix: BT.709
make wide.mp4 "${x264[@]}" -pix_fmt yuv420p -vf scale=32:48:out_color_matrix=bt601,setsar=2
make interlaced.mpg -c:v mpeg2video -r 25 -q:v 2 -flags +ilme+ildct+bitexact \
    -vf scale=out_color_matrix=bt601:out_range=tv,tinterlace=interleave_top,setfield=tff

# pictures
one() {
    local name=$1
    shift
    ff $(raw one.rgb) -map_metadata -1 -fflags +bitexact -flags +bitexact -frames:v 1 "$@" "$dir/$name"
}
one rgb.png -pix_fmt rgb24
one deep.png -pix_fmt rgb48be
one gray.png -pix_fmt gray
one palette.png -vf "split[a][b];[a]palettegen[p];[b][p]paletteuse=dither=none"
one alpha.png -vf "format=rgba,geq=r='r(X,Y)':g='g(X,Y)':b='b(X,Y)':a='if(lt(X,32),255,0)'"
one photo.jpg -q:v 2 -pix_fmt yuvj444p
one still.webp -c:v libwebp -lossless 1
one still.gif -vf "split[a][b];[a]palettegen[p];[b][p]paletteuse=dither=none"
one still.bmp -pix_fmt bgr24
one still.tiff -pix_fmt rgb24
one still.tga -pix_fmt bgr24
one still.jp2 -c:v jpeg2000 -pix_fmt rgb24
one single.mp4 "${x264[@]}" -pix_fmt yuv420p "${sd[@]}"
python3 - "$dir/photo.jpg" "$dir/exif6.jpg" <<'PY'
# the same photo marked "turn a quarter to the right to see it" (EXIF orientation 6)
import struct, sys
data = open(sys.argv[1], "rb").read()
tiff = b"II*\0" + struct.pack("<IHHHIHHI", 8, 1, 0x112, 3, 1, 6, 0, 0)
app1 = b"Exif\0\0" + tiff
open(sys.argv[2], "wb").write(data[:2] + b"\xff\xe1" + struct.pack(">H", len(app1) + 2) + app1 + data[2:])
PY

# clocks. vfr: frame i at i*i/100 s
make vfr.mkv "${x264[@]}" -bf 0 -pix_fmt yuv420p -vf "scale=out_color_matrix=bt601:out_range=tv,settb=1/1000,setpts=N*N*10" \
    -fps_mode passthrough -enc_time_base 1/1000
make negative.mov "${x264[@]}" -pix_fmt yuv420p "${sd[@]}" -movflags +negative_cts_offsets -use_editlist 0
make late.mkv "${x264[@]}" -pix_fmt yuv420p "${sd[@]}" -output_ts_offset 5000
make ntsc.mov "${x264[@]}" -pix_fmt yuv420p -r 30000/1001 -video_track_timescale 90000 "${sd[@]}"
ff -ss 0.35 -i "$dir/h264.mp4" -c copy -map_metadata -1 -fflags +bitexact "$dir/edited.mp4"  # an edit list
{   # two recordings in one stream: the clock goes back by an hour
    ff -i "$dir/h264.ts" -c copy -output_ts_offset 3600 -f mpegts one.ts
    cat one.ts "$dir/h264.ts"
} > "$dir/jump.ts"

# structure
for turn in 90 180 270; do
    ff -i "$dir/h264.mp4" -c copy -metadata:s:v:0 rotate=$turn -map_metadata -1 -fflags +bitexact \
        -metadata:s:v:0 rotate=$turn "$dir/turned$turn.mp4"
done
ff $(raw card.rgb) $(raw sif.rgb 176x144) -f lavfi -i "sine=duration=1" -map 0 -map 1 -map 2 \
    -map_metadata -1 -fflags +bitexact -flags +bitexact "${x264[@]}" -pix_fmt yuv420p "${sd[@]}" \
    -c:a aac -b:a 16k -shortest "$dir/streams.mkv"
ff -f lavfi -i "sine=duration=1" -c:a aac -b:a 16k -fflags +bitexact "$dir/sound.mp4"
ff -f lavfi -i "sine=duration=1" -i "$dir/rgb.png" -map 0 -map 1 -c:a aac -b:a 16k -c:v copy \
    -disposition:v attached_pic -fflags +bitexact "$dir/cover.m4a"
mv "$dir/cover.m4a" "$dir/cover.mp4"
size=$(stat -c %s "$dir/h264.mp4")
head -c $((size * 2 / 3)) "$dir/h264.mp4" > "$dir/cut.mp4"       # its index was last
ff -i "$dir/h264.mp4" -c copy -movflags +faststart -fflags +bitexact whole.mp4
head -c $((size * 3 / 4)) whole.mp4 > "$dir/cut-faststart.mp4"
du -sb "$dir" | cut -f 1
find "$dir" -size +20k -printf 'larger than 20 kB: %p\n'
